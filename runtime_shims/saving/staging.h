// Host memory that device copies arrive in: a bounded number of buffers, made when they are first needed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace aoti_debug {

class StagingPool {
 public:
  static constexpr size_t kSmallBytes = size_t{256} << 10;
  static constexpr size_t kLargeBytes = size_t{16} << 20;

  ~StagingPool();

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
  std::vector<void*> large_;
  std::vector<void*> free_large_;
  std::vector<void*> free_small_;
  uint8_t* small_ = nullptr;
  bool exhausted_ = false;  // the device gives no more
};

}  // namespace aoti_debug
