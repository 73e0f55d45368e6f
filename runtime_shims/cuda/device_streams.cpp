// The device and its streams (device.h): which tensors are in its memory, what a stream does, its pending error. The
// CUDA half speaks to the driver alone and works in whatever context the model runs in.
#include <dlfcn.h>

#include <cstdio>

#include "stream_state.h"

namespace aoti_debug::device {

using namespace aoti_debug::cuda;

constexpr int32_t kDeviceTypeCuda = 1;  // c10::DeviceType::CUDA

bool owns(int32_t device_type) { return device_type == kDeviceTypeCuda; }

// The legacy default stream cannot be asked while a stream that it waits for is capturing: that counts as capturing.
bool is_capturing(void* stream) {
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cuStreamIsCapturing(static_cast<CUstream>(stream), &status);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The runtime speaks to the driver alone; torch is asked where it is there.
void* current_stream(int32_t device_index) {
  using CurrentStream = int32_t (*)(int32_t, void**);
  static const auto ask = reinterpret_cast<CurrentStream>(dlsym(RTLD_DEFAULT, "aoti_torch_get_current_cuda_stream"));
  void* stream = nullptr;
  return ask != nullptr && ask(device_index, &stream) == 0 ? stream : nullptr;
}

bool wait_stream(void* stream) {
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  return current_context() != nullptr && synchronize(static_cast<CUstream>(stream));
}

int32_t pending_error(void* stream, char* text, size_t text_bytes) {
  if (text_bytes != 0) text[0] = '\0';
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  if (current_context() == nullptr || is_capturing(stream)) return 0;  // a query would end the capture
  const RelaxedCapture relaxed;
  const CUresult result = cuStreamQuery(static_cast<CUstream>(stream));
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return 0;
  if (text_bytes != 0) attempt([&] { return snprintf(text, text_bytes, "%s", cuda::describe(result).c_str()); }, 0);
  return static_cast<int32_t>(result);
}

}  // namespace aoti_debug::device
