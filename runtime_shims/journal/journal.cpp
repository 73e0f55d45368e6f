#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "machine/background_thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace aoti_debug {
namespace {

constexpr uint32_t kMinBlocks = 8;
// Beyond the limit: at level 3 each thread keeps a block, and notes must find room.
constexpr uint32_t kSpareBlocks = 1024;
constexpr uint32_t kMaxGrowth = 64;       // blocks that are allocated at once
constexpr uint32_t kAhead = 64;           // blocks that the preparer keeps ready
constexpr uint32_t kUsedBeforeAhead = 4;  // a short run needs no preparer

}  // namespace

Journal::~Journal() {
  stop_preparer();
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

int Journal::open(File file, const JournalSettings& settings) {
  const uint64_t blocks = std::max<uint64_t>(settings.limit_bytes / AOTI_DEBUG_BLOCK_BYTES, kMinBlocks);
  limit_blocks_ = static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX / 2));
  capacity_ = limit_blocks_ + kSpareBlocks;
  ring_ = settings.ring;
  released_.resize(capacity_);

  file_ = std::move(file);
  const uint64_t first_bytes = sizeof(JournalHeader) + uint64_t{kMinBlocks} * AOTI_DEBUG_BLOCK_BYTES;
  if (!file_size_allowed(first_bytes)) return EFBIG;
  if (const int error = allocate(file_, 0, first_bytes)) return error;
  allocated_ = kMinBlocks;

  mapped_bytes_ = sizeof(JournalHeader) + size_t{capacity_} * AOTI_DEBUG_BLOCK_BYTES;
  void* base = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.descriptor(), 0);
  if (base == MAP_FAILED) return errno;
  madvise(base, mapped_bytes_, MADV_DONTFORK);
  base_ = static_cast<uint8_t*>(base);

  clock_.start();
  auto* header = reinterpret_cast<JournalHeader*>(base_);
  header->version = AOTI_DEBUG_JOURNAL_VERSION;
  header->block_bytes = AOTI_DEBUG_BLOCK_BYTES;
  header->pid = static_cast<uint32_t>(getpid());
  header->level = settings.level;
  header->start_unix_ns = clock_.start_unix_ns();
  std::atomic_thread_fence(std::memory_order_release);
  memcpy(header->magic, AOTI_DEBUG_JOURNAL_MAGIC, sizeof(header->magic));
  return 0;
}

void Journal::set_crumb_every(uint64_t every) {
  __atomic_store_n(&reinterpret_cast<JournalHeader*>(base_)->crumb_every, every, __ATOMIC_RELAXED);
}

void Journal::call_begun() {
  if (is_open()) __atomic_fetch_add(&reinterpret_cast<JournalHeader*>(base_)->open_calls, 1, __ATOMIC_RELAXED);
}

void Journal::call_ended() {
  if (is_open()) __atomic_fetch_sub(&reinterpret_cast<JournalHeader*>(base_)->open_calls, 1, __ATOMIC_RELAXED);
}

void Journal::record_lost() {
  if (is_open()) __atomic_fetch_add(&reinterpret_cast<JournalHeader*>(base_)->lost_records, 1, __ATOMIC_RELAXED);
}

std::string Journal::take_stop_reason() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(stop_reason_, std::string());
}

void Journal::stop(std::string reason) {
  if (!stopped_) stop_reason_ = std::move(reason);
  stopped_ = true;
}

bool Journal::grow() {
  const uint32_t wanted =
      std::min({allocated_ + std::min(allocated_, kMaxGrowth), capacity_, std::max(limit_blocks_, allocated_ + 1)});
  const uint64_t start = sizeof(JournalHeader) + uint64_t{allocated_} * AOTI_DEBUG_BLOCK_BYTES;
  const uint64_t end = sizeof(JournalHeader) + uint64_t{wanted} * AOTI_DEBUG_BLOCK_BYTES;
  int error = file_size_allowed(end) ? 0 : EFBIG;
  if (error == 0) error = allocate(file_, start, end - start);
  if (error != 0) {
    stop(std::string("the journal cannot grow: ") + strerror(error) + (ring_ ? "; it reuses its blocks" : ""));
    return false;
  }
  allocated_ = wanted;
  return true;
}

void Journal::populate(uint32_t first, uint32_t end) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t from = reinterpret_cast<uintptr_t>(block_data(first)) & ~(page - 1);
  madvise(reinterpret_cast<void*>(from), reinterpret_cast<uintptr_t>(block_data(end)) - from, MADV_POPULATE_WRITE);
}

void Journal::prepare_blocks() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!closing_ && !stopped_) {
    const uint32_t wanted = std::min(taken_ + kAhead, limit_blocks_);
    if (prepared_ >= wanted) {
      taken_more_.wait(lock);
      continue;
    }
    if (allocated_ < wanted && !grow()) return;
    const uint32_t first = prepared_, end = std::min(wanted, first + kAhead / 8);
    lock.unlock();
    populate(first, end);
    lock.lock();
    prepared_ = std::max(prepared_, end);
  }
}

void Journal::start_preparer() {
  preparer_ = background_thread([this] {
    try {
      prepare_blocks();
    } catch (const std::bad_alloc&) {
      return;  // who takes a block prepares it
    }
  });
}

void Journal::stop_preparer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  taken_more_.notify_all();
  if (preparer_.joinable()) preparer_.join();
}

void Journal::trim() {
  stop_preparer();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (resize(file_, sizeof(JournalHeader) + uint64_t{taken_} * AOTI_DEBUG_BLOCK_BYTES) == 0) {
    allocated_ = prepared_ = taken_;
  }
}

uint32_t Journal::take_block(uint32_t thread) {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint32_t block = kNoBlock;
  bool reused = false;
  if (taken_ < limit_blocks_ || (ring_ && n_released_ == 0 && taken_ < capacity_)) {
    if (taken_ < allocated_ || (!stopped_ && grow())) block = taken_++;
  } else if (!ring_) {
    stop("the journal has reached AOTI_DEBUG_JOURNAL_BYTES");
  }
  if (block == kNoBlock) {
    if (!ring_ || n_released_ == 0) return kNoBlock;
    block = released_[first_released_];
    first_released_ = (first_released_ + 1) % capacity_;
    --n_released_;
    reused = true;
  }

  uint8_t* data = block_data(block);
  auto* header = reinterpret_cast<BlockHeader*>(data);
  if (reused) {
    __atomic_store_n(&header->magic, 0u, __ATOMIC_RELEASE);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    memset(data, 0, AOTI_DEBUG_BLOCK_BYTES);
    __atomic_fetch_add(&reinterpret_cast<JournalHeader*>(base_)->blocks_reused, 1, __ATOMIC_RELAXED);
  } else {
    if (block >= prepared_) {
      populate(block, block + 1);
      prepared_ = block + 1;
    }
    if (taken_ == kUsedBeforeAhead && !closing_) start_preparer();
    if (taken_ > kUsedBeforeAhead && prepared_ < std::min(taken_ + kAhead / 2, limit_blocks_)) taken_more_.notify_one();
  }
  header->thread = thread;
  header->sequence = sequence_++;
  __atomic_store_n(&header->magic, AOTI_DEBUG_BLOCK_MAGIC, __ATOMIC_RELEASE);
  return block;
}

void Journal::release_block(uint32_t block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  released_[(first_released_ + n_released_) % capacity_] = block;
  ++n_released_;
}

JournalWriter::JournalWriter(Journal* journal, uint32_t thread)
    : journal_(journal), thread_(thread), table_(new uint32_t[kTableSize]()) {}

JournalWriter::~JournalWriter() {
  if (block_ != Journal::kNoBlock) journal_->release_block(block_);
}

bool JournalWriter::next_block(uint32_t record_bytes_needed) {
  if (record_bytes_needed > AOTI_DEBUG_BLOCK_BYTES - sizeof(BlockHeader)) return false;
  const bool is_open = !stopped_ && journal_->is_open();
  const uint32_t block = is_open ? journal_->take_block(thread_) : Journal::kNoBlock;
  if (block == Journal::kNoBlock) {
    stopped_ = true;
    room_ = 0;
    journal_->record_lost();
    return false;
  }
  if (block_ != Journal::kNoBlock) journal_->release_block(block_);
  block_ = block;
  cursor_ = journal_->block_data(block) + sizeof(BlockHeader);
  room_ = AOTI_DEBUG_BLOCK_BYTES - sizeof(BlockHeader);
  ++generation_;
  n_layouts_ = 0;
  return true;
}

uint32_t JournalWriter::find_layout(const TensorMeta& meta) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
  uint64_t mixed = static_cast<uint64_t>(meta.dtype) * kOdd + meta.ndim;
  mixed +=
      static_cast<uint64_t>(meta.storage_bytes) * (3 * kOdd) + static_cast<uint64_t>(meta.storage_offset) * (5 * kOdd);
  for (uint16_t d = 0; d < meta.ndim; ++d) {
    mixed += static_cast<uint64_t>(meta.sizes[d]) * ((4u * d + 7u) * kOdd);
    mixed += static_cast<uint64_t>(meta.strides[d]) * ((4u * d + 9u) * kOdd);
  }
  uint32_t place = static_cast<uint32_t>(mixed >> 32) % kTableSize;
  for (; table_[place] != 0; place = (place + 1) % kTableSize) {
    if (is_layout(known_[table_[place] - 1], meta)) return table_[place] - 1;
  }
  if (known_.size() == kMaxKnown) {
    known_.clear();
    dims_.clear();
    memset(table_.get(), 0, kTableSize * sizeof(table_[0]));
    place = static_cast<uint32_t>(mixed >> 32) % kTableSize;
  }
  const auto dims = static_cast<uint32_t>(dims_.size());
  dims_.insert(dims_.end(), meta.sizes, meta.sizes + meta.ndim);
  dims_.insert(dims_.end(), meta.strides, meta.strides + meta.ndim);
  known_.push_back(KnownLayout{meta, 0, 0, dims});
  table_[place] = static_cast<uint32_t>(known_.size());
  return table_[place] - 1;
}

uint32_t JournalWriter::record_layout(uint32_t index, uint32_t keep, uint64_t time_ns) {
  KnownLayout& known = known_[index];
  const TensorKind& kind = known.kind;
  const size_t dims_bytes = size_t{kind.ndim} * 2 * sizeof(int64_t);
  const auto payload = static_cast<uint32_t>(sizeof(Layout) + dims_bytes);
  if (room_ < record_bytes(payload) + record_bytes(keep)) return kNoLayout;
  known.id = n_layouts_++;
  known.generation = generation_;
  uint8_t* to = start(payload);
  const Layout layout{known.id,    kind.dtype, kind.device_type,    kind.device_index,
                      kind.layout, kind.ndim,  kind.storage_offset, kind.storage_bytes};
  memcpy(to, &layout, sizeof(layout));
  if (dims_bytes != 0) memcpy(to + sizeof(Layout), dims_.data() + known.dims, dims_bytes);
  finish(RECORD_LAYOUT, 0, time_ns);
  return known.id;
}

}  // namespace aoti_debug
