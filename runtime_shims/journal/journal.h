// journal.bin while it is written (journal_format.h says what is in it).
#pragma once

#include <string.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "formats/journal_format.h"
#include "machine/clock.h"
#include "machine/file.h"
#include "tensors/tensor_meta.h"

namespace aoti_debug {

class JournalWriter;

struct JournalSettings {
  uint32_t level;
  bool ring;             // reuse the oldest blocks at the limit; otherwise stop there
  uint64_t limit_bytes;  // of all blocks together
};

// The mapped file and its blocks. Threads write through JournalWriters.
class Journal {
 public:
  Journal() = default;
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Begins the journal in an empty file. 0, or an errno.
  int open(File file, const JournalSettings& settings);

  bool is_open() const { return base_ != nullptr; }

  bool has_stopped() const { return stopped_.load(std::memory_order_relaxed); }

  // Where a limit or a full disk stopped the recording: what to say about it, once; otherwise "".
  std::string take_stop_reason();

  void set_crumb_every(uint64_t every);

  // Who watches the process from outside sees them where the recording has stopped, too.
  void call_begun();
  void call_ended();

  // Gives back the space that was allocated and never used.
  void trim();

  uint64_t now_ns() const { return clock_.now_ns(); }

 private:
  friend class JournalWriter;

  static constexpr uint32_t kNoBlock = UINT32_MAX;

  // A zeroed block with its header, owned by the caller; kNoBlock where there is none to be had.
  uint32_t take_block(uint32_t thread);
  void release_block(uint32_t block);
  bool grow();
  void stop(std::string reason);
  void record_lost();
  void populate(uint32_t first, uint32_t end) const;
  void prepare_blocks();
  void start_preparer();
  void stop_preparer();
  uint8_t* block_data(uint32_t block) const {
    return base_ + sizeof(JournalHeader) + size_t{block} * AOTI_DEBUG_BLOCK_BYTES;
  }

  Clock clock_;
  uint8_t* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  File file_;
  bool ring_ = false;
  uint32_t limit_blocks_ = 0;
  uint32_t capacity_ = 0;  // blocks that the mapping has room for

  std::mutex mutex_;        // guards what follows
  uint32_t allocated_ = 0;  // blocks that exist in the file
  uint32_t prepared_ = 0;   // of these, how many have their pages in memory
  uint32_t taken_ = 0;      // of these, how many were ever used
  uint64_t sequence_ = 0;
  std::vector<uint32_t> released_;  // a ring of block numbers, oldest first
  size_t first_released_ = 0;
  size_t n_released_ = 0;
  std::atomic<bool> stopped_{false};
  std::string stop_reason_;
  bool closing_ = false;
  std::condition_variable taken_more_;
  std::thread preparer_;  // has pages ready before a launch has to wait for them
};

// Appends records to blocks of its own. Used by one thread at a time.
class JournalWriter {
 public:
  static constexpr uint32_t kNoLayout = UINT32_MAX;
  // The largest payload that a fresh block has room for.
  static constexpr uint32_t kMaxPayload = AOTI_DEBUG_BLOCK_BYTES - sizeof(BlockHeader) - sizeof(RecordHeader);

  explicit JournalWriter(Journal* journal, uint32_t thread);
  ~JournalWriter();
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  // Room for a record of at most `payload` bytes, zeroed; nullptr once recording has stopped. `finish` completes it.
  uint8_t* start(uint32_t payload) {
    const uint32_t size = record_bytes(payload);
    if (room_ < size && !next_block(size)) return nullptr;
    pending_ = size;
    return cursor_ + sizeof(RecordHeader);
  }

  void finish(RecordType type, uint16_t flags, uint64_t time_ns) {
    auto* header = reinterpret_cast<RecordHeader*>(cursor_);
    header->type = static_cast<uint16_t>(type);
    header->flags = flags;
    header->time_ns = time_ns;
    __atomic_store_n(&header->size, pending_, __ATOMIC_RELEASE);
    cursor_ += pending_;
    room_ -= pending_;
  }

  // Has the processor fetch the memory of the next records meanwhile: another thread has prepared it.
  void fetch_ahead() const {
    constexpr uint32_t kBytes = 448, kLine = 64;
    if (room_ < kBytes) return;
    for (uint32_t at = 0; at < kBytes; at += kLine) __builtin_prefetch(cursor_ + at, 1);
  }

  bool has_room(uint32_t payload) const { return room_ >= record_bytes(payload); }

  // The id of a layout in the current block, where that has it already and `memo` tells where; otherwise kNoLayout.
  uint32_t known_layout(const TensorMeta& meta, uint32_t memo) const {
    if (memo >= known_.size()) return kNoLayout;
    const KnownLayout& known = known_[memo];
    return known.generation == generation_ && is_layout(known, meta) ? known.id : kNoLayout;
  }

  // The id of a layout in the current block, which is recorded there first if need be. kNoLayout: the block has no room
  // for it and a record of `keep` bytes of payload after it. `memo` is where this layout was found last, in whatever
  // state: a slot of a launch mostly has the same one the next time.
  uint32_t layout(const TensorMeta& meta, uint32_t keep, uint64_t time_ns, uint32_t* memo) {
    if (!has_room(keep)) return kNoLayout;
    if (*memo >= known_.size() || !is_layout(known_[*memo], meta)) *memo = find_layout(meta);
    const KnownLayout& known = known_[*memo];
    return known.generation == generation_ ? known.id : record_layout(*memo, keep, time_ns);
  }

  // Leaves the rest of the block empty. False once recording has stopped.
  bool next_block(uint32_t record_bytes_needed = 0);

  uint32_t thread() const { return thread_; }
  void set_thread(uint32_t thread) { thread_ = thread; }

  static constexpr uint32_t record_bytes(uint32_t payload) {
    return static_cast<uint32_t>((sizeof(RecordHeader) + payload + 7) & ~size_t{7});
  }

 private:
  struct KnownLayout {
    TensorKind kind;
    uint32_t id;          // in the block of `generation`
    uint32_t generation;  // of the block that it was recorded in last
    uint32_t dims;        // of its sizes in dims_; the strides follow
  };
  static constexpr uint32_t kTableSize = 4096;
  static constexpr uint32_t kMaxKnown = kTableSize / 2;

  bool is_layout(const KnownLayout& known, const TensorMeta& meta) const {
    if (memcmp(&known.kind, static_cast<const TensorKind*>(&meta), sizeof(TensorKind)) != 0) return false;
    const int64_t* const sizes = dims_.data() + known.dims;
    const int64_t* const strides = sizes + meta.ndim;
    int64_t different = 0;
    for (uint16_t d = 0; d < meta.ndim; ++d) {
      different |= (sizes[d] ^ meta.sizes[d]) | (strides[d] ^ meta.strides[d]);
    }
    return different == 0;
  }
  __attribute__((noinline)) uint32_t find_layout(const TensorMeta& meta);
  __attribute__((noinline)) uint32_t record_layout(uint32_t index, uint32_t keep, uint64_t time_ns);

  Journal* journal_;
  uint8_t* cursor_ = nullptr;
  uint32_t room_ = 0;
  uint32_t pending_ = 0;
  uint32_t block_ = UINT32_MAX;
  uint32_t generation_ = 0;
  uint32_t n_layouts_ = 0;
  uint32_t thread_;
  bool stopped_ = false;
  std::vector<KnownLayout> known_;
  std::vector<int64_t> dims_;
  std::unique_ptr<uint32_t[]> table_;  // hash -> index in known_, plus 1; 0: none
};

}  // namespace aoti_debug
