// Stores numbers in shared host memory in the order of a stream's work.
#pragma once

#include <atomic>
#include <mutex>

#include "driver.h"

namespace aoti_debug::cuda {

// `Of` tells one memory from another.
template <class Of>
class SharedWords {
 public:
  // Registers host memory with the driver, until `close`.
  bool open(void* base, size_t bytes) {
    if (current_context() == nullptr) return false;
    const RelaxedCapture relaxed;
    CUresult result = cuMemHostRegister(base, bytes, kFlags);
    if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {  // an earlier mapping at this address, or this one
      if (cuMemHostUnregister(base) == CUDA_SUCCESS) result = cuMemHostRegister(base, bytes, kFlags);
    }
    if (result != CUDA_SUCCESS || device_address(base) == 0) return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    base_ = base;
    ++generation_;
    return true;
  }

  // Nothing may be on its way to the memory. False: the driver still knows it.
  bool close() {
    const RelaxedCapture relaxed;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (base_ == nullptr || current_context() == nullptr || cuMemHostUnregister(base_) != CUDA_SUCCESS) return false;
    base_ = nullptr;
    ++generation_;
    return true;
  }

  // A fill of one word comes after all work before it, as everything on a stream does. It keeps the stream busy for
  // less time than cuStreamWriteValue32, which fences the whole device: 1.3 µs against 2.1 µs on an H100.
  bool write(CUstream stream, size_t offset, uint32_t value) {
    const CUdeviceptr to = address(stream, offset);
    if (to == 0) return false;
    if (cuMemsetD32Async(to, value, 1, stream) == CUDA_SUCCESS) return true;
    const WithContext own(context_of(stream));
    return cuMemsetD32Async(to, value, 1, stream) == CUDA_SUCCESS;
  }

  // Where a device sees a word; 0: it does not.
  CUdeviceptr address(CUstream stream, size_t offset) {
    static thread_local Address known;
    const CUcontext context = current_context();
    if (known.context != context || known.generation != generation_.load(std::memory_order_acquire)) {
      known = find(context, stream);
    }
    return known.address == 0 ? 0 : known.address + offset;
  }

 private:
  static constexpr unsigned int kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

  // Where a thread with this current context sees the memory.
  struct Address {
    CUcontext context = nullptr;
    uint64_t generation = 0;
    CUdeviceptr address = 0;
  };

  Address find(CUcontext context, CUstream stream) {
    const WithContext own(context_of(stream));
    const std::lock_guard<std::mutex> lock(mutex_);
    return Address{context, generation_.load(), base_ == nullptr ? 0 : device_address(base_)};
  }

  std::mutex mutex_;
  void* base_ = nullptr;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace aoti_debug::cuda
