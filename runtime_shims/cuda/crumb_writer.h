// Stores numbers in shared host memory in the order of a stream's work.
#pragma once

#include <atomic>
#include <mutex>

#include "driver.h"

extern "C" {
// The second came with CUDA 11.7, the first may leave one day: a package loads with either.
CUresult aoti_debug_write_value(CUstream, CUdeviceptr, cuuint32_t, unsigned int) __asm__("cuStreamWriteValue32")
    __attribute__((weak));
CUresult aoti_debug_write_value_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned int) __asm__("cuStreamWriteValue32_v2")
    __attribute__((weak));
}

namespace aoti_debug::cuda {

class CrumbWriter {
 public:
  // Registers host memory with the driver, for the life of the process.
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

  // With the default flags the driver fences: the word is written once everything before it on the stream has
  // completed. CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER lets it overtake, and the second version of the call refuses it.
  bool write(CUstream stream, size_t offset, uint32_t value) {
    static thread_local Address known;
    const CUcontext context = current_context();
    if (known.context != context || known.generation != generation_.load(std::memory_order_acquire)) {
      known = find(context, stream);
    }
    const auto enqueue = aoti_debug_write_value_v2 != nullptr ? aoti_debug_write_value_v2 : aoti_debug_write_value;
    if (known.address == 0 || enqueue == nullptr) return false;
    const CUdeviceptr address = known.address + offset;
    if (enqueue(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS) return true;
    const WithContext own(context_of(stream));
    return enqueue(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS;
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
