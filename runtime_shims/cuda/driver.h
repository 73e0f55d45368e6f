// The little that every user of the CUDA driver API here needs.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <string>

namespace aoti_debug::cuda {

// While it lives, calls of this thread that are not allowed during another thread's graph capture (allocation, module
// loading, queries) leave that capture alone.
class RelaxedCapture {
 public:
  RelaxedCapture() { cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// nullptr on a thread without one.
inline CUcontext current_context() {
  CUcontext context = nullptr;
  return cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// A stream knows its own; a default stream is that of the current context.
inline CUcontext context_of(CUstream stream) {
  CUcontext context = nullptr;
  const bool is_default = stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  return !is_default && cuStreamGetCtx(stream, &context) == CUDA_SUCCESS ? context : current_context();
}

// Makes an existing context current while it lives.
class WithContext {
 public:
  explicit WithContext(CUcontext context) {
    pushed_ = context != nullptr && context != current_context() && cuCtxPushCurrent(context) == CUDA_SUCCESS;
  }
  ~WithContext() {
    CUcontext popped;
    if (pushed_) cuCtxPopCurrent(&popped);
  }
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;

 private:
  bool pushed_ = false;
};

// "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"; for what the driver does not know its number.
inline std::string describe(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) return "CUDA error " + std::to_string(result);
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + ": " + text;
}

// Device memory, freed with its context or never.
inline CUdeviceptr allocate(size_t bytes) {
  const RelaxedCapture relaxed;
  CUdeviceptr address = 0;
  return cuMemAlloc(&address, bytes) == CUDA_SUCCESS ? address : 0;
}

// Pinned host memory that every context can use and the device can write.
inline void* allocate_pinned(size_t bytes) {
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  const unsigned int flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  return cuMemHostAlloc(&memory, bytes, flags) == CUDA_SUCCESS ? memory : nullptr;
}

// The device's address of pinned or registered host memory; 0 where there is none.
inline CUdeviceptr device_address(void* host) {
  CUdeviceptr address = 0;
  return cuMemHostGetDevicePointer(&address, host, 0) == CUDA_SUCCESS ? address : 0;
}

}  // namespace aoti_debug::cuda
