// Saves tensors as files of the run directory: each once, then as hard links, by several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "known_files.h"
#include "safetensors_file.h"
#include "save_budget.h"
#include "staging.h"
#include "weights_file.h"
#include "writer_pool.h"

namespace aoti_debug {

// One tensor to save.
struct SaveRequest {
  LaunchId id;
  Phase phase;
  uint16_t slot;
  const char* kernel;
  const char* argument;
  TensorMeta meta;
  bool written = false;  // the launch may have written it
};

// Counts the files that are not finished yet.
class SaveBatch {
 public:
  void add() { pending_.fetch_add(1, std::memory_order_relaxed); }
  void done() { pending_.fetch_sub(1, std::memory_order_release); }
  bool is_done() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  std::atomic<uint32_t> pending_{0};
};

struct SaveJob;

class TensorStore {
 public:
  // Weights that `weights` has are referred to.
  TensorStore(Journal* journal, std::string run_directory, const SaveLimits& limits, WeightsFile* weights);
  TensorStore(const TensorStore&) = delete;
  TensorStore& operator=(const TensorStore&) = delete;

  // False once a limit, a full disk or an error has stopped the saving.
  bool is_saving() const { return !budget_.has_stopped(); }
  std::string take_stop_reason() { return budget_.take_stop_reason(); }

  // Saves a tensor in host memory: its file is there when this returns, and outlives a crash of the launch that
  // follows.
  void save_host(const SaveRequest& request, JournalWriter* writer);

  // Saves a tensor in the device's memory as it is after what is enqueued on `stream`; the host may go on at once.
  // Waits while there is no staging memory. Where the content hash (hash[0]) is known, equal bytes are not copied
  // again.
  void save_device(void* stream, const SaveRequest& request, std::optional<uint64_t> known_hash, SaveBatch* batch,
                   JournalWriter* writer);

  // Waits until every file of the batch is there, and helps with writing.
  void wait(SaveBatch* batch, JournalWriter* writer);

 private:
  // A part of a device tensor.
  struct Piece {
    StagedCopy copy;
    uint64_t offset = 0;  // bytes
    uint64_t bytes = 0;
  };
  class Unsubmitted;

  // nullptr where the tensor is not to be saved; the journal then says why.
  std::shared_ptr<SaveJob> make_job(const SaveRequest& request, SaveBatch* batch, JournalWriter* writer);
  void record(const SaveJob& job, JournalWriter* writer, SaveStatus status, const char* reason = "") const;

  // Whether the bytes of `job`, whose hash is known, are there already; then they are linked.
  bool link_known(SaveJob& job, JournalWriter* writer);
  // The same, once an equal file that is being written is there.
  bool link_coming(SaveJob& job, JournalWriter* writer);

  // Whether the tensor, whose hash is known, has the bytes of a weight in its file; then a reference is there.
  bool refer(SaveJob& job, const SaveRequest& request, uint64_t place, JournalWriter* writer);

  void process_piece(SaveJob& job, Piece& piece, JournalWriter* writer);
  void process_only_piece(SaveJob& job, const uint8_t* data, JournalWriter* writer);
  // So many are processed or lost.
  void end_pieces(SaveJob& job, uint32_t count, JournalWriter* writer);
  void complete_pieces(SaveJob& job, JournalWriter* writer);

  int create_temporary(SaveJob& job);
  int write_elements(SaveJob& job);
  // Hashes and writes piece by piece, so that each piece is read from memory once, and by one thread: threads in
  // lockstep would wait for the slowest, on a host with other work to do.
  int hash_and_write_elements(SaveJob& job);
  // Makes the temporary file the tensor's file, or removes it.
  void conclude(SaveJob& job, int error, JournalWriter* writer);
  void discard(SaveJob& job);
  void finish(SaveJob& job);

  Journal* journal_;
  const std::string directory_;
  SaveBudget budget_;
  KnownFiles known_;
  WeightsFile* weights_;
  StagingPool staging_;
  std::atomic<uint64_t> n_temporary_{0};
  WriterPool pool_;
};

}  // namespace aoti_debug
