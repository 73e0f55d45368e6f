#include "stream_state.h"

#include "statistics_ptx.h"

namespace aoti_debug::cuda {

// Never destroyed: at exit the driver may be gone before it.
State& state() {
  static auto* const instance = new State(statistics_ptx());  // NOLINT(cppcoreguidelines-owning-memory)
  return *instance;
}

StreamState& stream_state(CUcontext context, CUstream stream) {
  const std::thread::id thread = stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id();
  StreamState& entry = state().streams[StreamKey{context, stream, thread}];
  state().known_context = context;
  CUdevice device = 0;
  int multiprocessors = 0;
  if (entry.device < 0 && cuCtxGetDevice(&device) == CUDA_SUCCESS &&
      cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) == CUDA_SUCCESS) {
    entry.device = device;
    entry.most_blocks = std::min(static_cast<uint32_t>(multiprocessors) * kBlocksPerMultiprocessor, kMaxBlocks);
  }
  return entry;
}

CUcontext current_or_known_context() {
  const CUcontext context = current_context();
  if (context != nullptr) return context;
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().known_context;
}

bool synchronize(CUstream stream) {
  const RelaxedCapture relaxed;
  return cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

const char* unreadable(const device::TensorView& view, const StreamState& stream) {
  const size_t bytes = view.element_bytes;
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16) return "its elements have an unknown size";
  if (view.data % std::min(bytes, sizeof(uint64_t)) != 0) return "its address is not aligned to its elements";
  if (view.device_index >= 0 && view.device_index != stream.device) return "it is on another device than its launch";
  return "";
}

bool launch_kernel(CUfunction function, const Grid& grid, CUstream stream, void* argument) {
  void* arguments[] = {argument};
  return cuLaunchKernel(function, grid.blocks, 1, 1, grid.threads, 1, 1, 0, stream, arguments, nullptr) == CUDA_SUCCESS;
}

bool launch_early(CUfunction function, const Grid& grid, CUstream stream, void* argument) {
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = grid.blocks;
  config.blockDimX = grid.threads;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  void* arguments[] = {argument};
  return cuLaunchKernelEx(&config, function, arguments, nullptr) == CUDA_SUCCESS;
}

}  // namespace aoti_debug::cuda
