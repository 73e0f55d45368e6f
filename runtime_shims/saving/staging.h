// Host memory that device copies arrive in: a bounded number of buffers, made when they are first needed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "device/device.h"

namespace aoti_debug {

class StagingPool {
 public:
  static constexpr size_t kSmallBytes = size_t{256} << 10;
  static constexpr size_t kLargeBytes = size_t{16} << 20;

  StagingPool();
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // A buffer of kSmallBytes if that is enough for `bytes`, otherwise of kLargeBytes. Waits until one is free; nullptr
  // where the device gives no memory at all.
  void* acquire(size_t bytes);
  void release(void* buffer);

 private:
  static constexpr size_t kLargeBuffers = 15;
  static constexpr size_t kSmallBuffers = kLargeBytes / kSmallBytes;  // together 256 MiB

  bool is_small(void* buffer) const;

  std::mutex mutex_;
  std::condition_variable freed_;
  // None of these grows: to take a buffer and to give it back needs no memory.
  std::vector<void*> large_;
  std::vector<void*> free_large_;
  std::vector<void*> free_small_;
  uint8_t* small_ = nullptr;
  bool exhausted_ = false;  // the device gives no more
};

// A copy of elements of a device tensor in a buffer of a pool, which has the buffer back once the copy is no more.
class StagedCopy {
 public:
  StagedCopy() = default;
  // Waits while the pool has no buffer.
  StagedCopy(StagingPool* pool, void* stream, const device::TensorView& view, uint64_t first_byte, size_t bytes);
  StagedCopy(StagedCopy&& other) noexcept
      : pool_(other.pool_),
        buffer_(std::exchange(other.buffer_, nullptr)),
        ticket_(other.ticket_),
        state_(other.state_) {}
  StagedCopy& operator=(StagedCopy&& other) noexcept;
  ~StagedCopy() { reset(); }

  bool has_begun() const { return state_ == State::kOnItsWay || state_ == State::kArrived; }
  // Whether no buffer was to be had.
  bool lacks_memory() const { return state_ == State::kNoMemory; }

  // The bytes, once they have arrived; nullptr where they do not.
  const uint8_t* wait();

  void reset();

 private:
  enum class State : uint8_t { kNoMemory, kNotCopied, kOnItsWay, kArrived };

  StagingPool* pool_ = nullptr;
  void* buffer_ = nullptr;
  uint64_t ticket_ = 0;
  State state_ = State::kNoMemory;
};

}  // namespace aoti_debug
