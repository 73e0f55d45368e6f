// Saves tensors as files of the run directory: limits, hard links for what is there already, and the threads that write.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "hashing.h"
#include "journal.h"
#include "safetensors_file.h"
#include "staging.h"

namespace aoti_debug {

struct SaveLimits {
  uint64_t bytes;
  uint64_t files;
  uint64_t tensor_bytes;
  uint64_t keep_free_bytes;
};

// One tensor to save.
struct SaveRequest {
  LaunchId id;
  Phase phase;
  uint16_t slot;
  const char* kernel;
  const char* argument;
  TensorMeta meta;
};

// Counts the files of a call that are not finished yet.
class SaveBatch {
 public:
  void add() { pending_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class TensorStore;
  std::atomic<uint32_t> pending_{0};
};

struct SaveJob;

class TensorStore {
 public:
  TensorStore(Journal* journal, std::string run_directory, const SaveLimits& limits);
  ~TensorStore();
  TensorStore(const TensorStore&) = delete;
  TensorStore& operator=(const TensorStore&) = delete;

  // False once a limit, a full disk or an error has stopped the saving.
  bool is_saving() const { return !stopped_.load(std::memory_order_relaxed); }

  // Saves a tensor in host memory, which must not change until `wait`.
  void save_host(const SaveRequest& request, SaveBatch* batch, JournalWriter* writer);

  // Saves a tensor in the device's memory as it is after what is enqueued on `stream`; the host may go on at once.
  // Waits while there is no staging memory. Where the content hash (hash[0]) is known, equal bytes are not copied again.
  void save_device(void* stream, const SaveRequest& request, std::optional<uint64_t> known_hash, SaveBatch* batch,
                   JournalWriter* writer);

  // Waits until every file of the batch is there, and helps with writing.
  void wait(SaveBatch* batch, JournalWriter* writer);

  // What stopped the saving, once; otherwise "".
  std::string take_stop_reason();

 private:
  struct Known {
    uint64_t second_hash;
    std::string path;
  };
  struct Key {
    uint64_t header;
    uint64_t content;
    bool operator==(const Key& other) const { return header == other.header && content == other.content; }
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.header ^ (key.content * 3); }
  };
  // A part of a job: all of a host tensor, or a piece of a device tensor that arrives in `buffer`.
  struct Item {
    std::shared_ptr<SaveJob> job;
    void* buffer = nullptr;  // nullptr: a host tensor
    uint64_t ticket = 0;
    uint64_t offset = 0;  // bytes
    uint64_t bytes = 0;
  };

  std::shared_ptr<SaveJob> make_job(const SaveRequest& request, SaveBatch* batch) const;
  bool link_known(SaveJob& job, JournalWriter* writer);
  bool reserve(uint64_t bytes);
  int create_temporary(SaveJob& job);
  int write_host(SaveJob& job);
  void publish(SaveJob& job, JournalWriter* writer);
  void record(const SaveJob& job, JournalWriter* writer, SaveStatus status, const std::string& reason) const;
  void discard(SaveJob& job, int error);
  void finish(SaveJob& job);
  void stop(std::string reason);

  void submit(Item item, JournalWriter* writer);
  void process(Item& item, JournalWriter* writer);
  void process_host(SaveJob& job, JournalWriter* writer);
  void process_piece(Item& item, JournalWriter* writer);
  void complete_pieces(SaveJob& job, JournalWriter* writer);
  bool start_threads();
  void write_files();

  Journal* journal_;
  const std::string directory_;
  const SaveLimits limits_;
  StagingPool staging_;
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> n_temporary_{0};

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Item> queue_;
  std::vector<std::thread> threads_;
  bool threads_failed_ = false;
  bool closing_ = false;
  std::unordered_map<Key, Known, KeyHash> known_;
  uint64_t n_bytes_ = 0;
  uint64_t n_files_ = 0;
  std::string stop_reason_;
};

}  // namespace aoti_debug
