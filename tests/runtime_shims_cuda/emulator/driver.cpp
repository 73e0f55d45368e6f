// A CUDA driver for one fake device with two contexts: its memory is host memory, and a stream is a queue whose
// work happens when somebody waits for it, so that what relies on order or on waiting shows.
#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels.h"

namespace {

struct Work {
  std::function<void()> body;
  bool borrows;  // it reads or writes memory that belongs to somebody else
};

struct Stream {
  std::deque<Work> work;
  uint64_t done = 0;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  std::vector<std::function<void()>> graph;  // what was captured
};

struct Driver {
  std::map<std::pair<CUcontext, CUstream>, Stream> streams;
  std::vector<CUcontext> contexts;  // the stack of the only thread
  CUresult error = CUDA_SUCCESS;
  CUresult capture_query = CUDA_SUCCESS;
  size_t memory_left = ~size_t{0};
  size_t allocated = 0;
  std::map<CUdeviceptr, size_t> allocations;
  int module_loads = 0;
  int launches = 0;
  int early_launches = 0;          // among them: of kernels that wait for the work before them by themselves
  std::set<CUfunction> early;      // such kernels
  int major = 9, version = 13000;  // of the device's compute capability; the driver's
  int multiprocessors = 2;
  int events = 0;
  bool works_at_once = false;
  std::set<void*> registered;
  std::map<CUstream, CUcontext> owners;  // of the streams that tell
};
Driver driver;

struct Module {
  std::string name;
  bool waits;
};
struct Event {
  Stream* stream = nullptr;
  uint64_t position = 0;
};

CUcontext context() { return driver.contexts.empty() ? nullptr : driver.contexts.back(); }
Stream& stream_of(CUstream stream) { return driver.streams[{context(), stream}]; }

void run(Stream& stream, uint64_t until) {
  while (!stream.work.empty() && stream.done < until && driver.error == CUDA_SUCCESS) {
    const Work work = std::move(stream.work.front());
    stream.work.pop_front();
    ++stream.done;
    work.body();
  }
}

bool is_own(CUdeviceptr address) {
  const auto after = driver.allocations.upper_bound(address);
  return after != driver.allocations.begin() && address < std::prev(after)->first + std::prev(after)->second;
}

CUresult enqueue(CUstream stream, std::function<void()> body, bool borrows = true) {
  if (context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const auto owner = driver.owners.find(stream);
  if (owner != driver.owners.end() && owner->second != context()) return CUDA_ERROR_INVALID_HANDLE;
  Stream& queue = stream_of(stream);
  if (queue.capture == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    queue.graph.push_back(std::move(body));
  } else if (driver.works_at_once && driver.error == CUDA_SUCCESS) {
    body();
  } else if (driver.error == CUDA_SUCCESS) {
    queue.work.push_back(Work{std::move(body), borrows});
  }
  return driver.error;
}

}  // namespace

#define EXPORT __attribute__((visibility("default")))

// ---- what the tests turn

extern "C" {
EXPORT void emulator_use_context(uint64_t number) {
  driver.contexts.clear();
  if (number != 0) driver.contexts.push_back(reinterpret_cast<CUcontext>(number));
}
// From now on nothing waits for somebody to wait for it.
EXPORT void emulator_work_at_once() { driver.works_at_once = true; }
EXPORT void emulator_own_stream(void* stream, uint64_t number) {
  driver.owners[static_cast<CUstream>(stream)] = reinterpret_cast<CUcontext>(number);
}
EXPORT void emulator_fail(int error) { driver.error = static_cast<CUresult>(error); }
EXPORT void emulator_fail_after_queued(void* stream, int error) {
  enqueue(static_cast<CUstream>(stream), [error] { driver.error = static_cast<CUresult>(error); });
}
EXPORT void emulator_capture(void* stream, int status, int query_result) {
  Stream& captured = stream_of(static_cast<CUstream>(stream));
  captured.capture = static_cast<CUstreamCaptureStatus>(status);
  if (captured.capture == CU_STREAM_CAPTURE_STATUS_ACTIVE) captured.graph.clear();
  driver.capture_query = static_cast<CUresult>(query_result);
}
// The first `nodes` of what was captured.
EXPORT void emulator_replay(void* stream, uint64_t nodes) {
  const std::vector<std::function<void()>>& graph = stream_of(static_cast<CUstream>(stream)).graph;
  for (size_t i = 0; i < graph.size() && i < nodes; ++i) graph[i]();
}
EXPORT void emulator_fill(void* stream, uint8_t* memory, int value, uint64_t bytes) {
  enqueue(static_cast<CUstream>(stream), [=] { memset(memory, value, bytes); });
}
EXPORT void emulator_finish() {
  for (auto& [key, stream] : driver.streams) run(stream, ~uint64_t{0});
}
// How much is left to do that needs memory of somebody else; then none of that.
EXPORT uint64_t emulator_abandon() {
  uint64_t abandoned = 0;
  for (auto& [key, stream] : driver.streams) {
    const auto kept =
        std::remove_if(stream.work.begin(), stream.work.end(), [](const Work& work) { return work.borrows; });
    abandoned += static_cast<uint64_t>(stream.work.end() - kept);
    stream.work.erase(kept, stream.work.end());
  }
  return abandoned;
}
EXPORT void emulator_limit_memory(uint64_t bytes) { driver.memory_left = bytes; }
EXPORT uint64_t emulator_queued(void* stream) { return stream_of(static_cast<CUstream>(stream)).work.size(); }
EXPORT uint64_t emulator_allocated() { return driver.allocated; }
EXPORT int emulator_module_loads() { return driver.module_loads; }
EXPORT int emulator_launches() { return driver.launches; }
EXPORT int emulator_early_launches() { return driver.early_launches; }
EXPORT void emulator_be(int major, int version) {
  driver.major = major;
  driver.version = version;
}
EXPORT void emulator_have(int multiprocessors) { driver.multiprocessors = multiprocessors; }
EXPORT int emulator_events() { return driver.events; }

// ---- the driver

CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : nullptr;
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuCtxGetCurrent(CUcontext* current) {
  *current = context();
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext pushed) {
  driver.contexts.push_back(pushed);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* popped) {
  *popped = context();
  driver.contexts.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = static_cast<int>(reinterpret_cast<uintptr_t>(context())) - 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? driver.major : driver.multiprocessors;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = driver.version;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUresult cuStreamGetCtx(CUstream stream, CUcontext* owner) {
  const auto found = driver.owners.find(stream);
  if (found == driver.owners.end()) return CUDA_ERROR_NOT_SUPPORTED;
  *owner = found->second;
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = stream_of(stream).capture;
  return driver.error != CUDA_SUCCESS ? driver.error : driver.capture_query;
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph* graph,
                                const CUgraphNode** nodes, const CUgraphEdgeData**, size_t* count) {
  *status = stream_of(stream).capture;
  *graph = reinterpret_cast<CUgraph>(&stream_of(stream));
  *nodes = nullptr;
  *count = 0;
  return driver.error;
}
CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                              const CUDA_KERNEL_NODE_PARAMS* params) {
  const emulator::Kernel kernel = *reinterpret_cast<emulator::Kernel*>(params->func);
  const char* const argument = static_cast<const char*>(params->kernelParams[0]);
  const std::vector<char> copy(argument, argument + kernel.argument_bytes);
  const unsigned int blocks = params->gridDimX, threads = params->blockDimX;
  reinterpret_cast<Stream*>(graph)->graph.push_back([=] { emulator::launch(kernel, copy.data(), blocks, threads); });
  *node = nullptr;
  return driver.error;
}
CUresult cuStreamCreate(CUstream* stream, unsigned int) {
  *stream = reinterpret_cast<CUstream>(uintptr_t{0xf000});
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamQuery(CUstream stream) {
  if (stream_of(stream).capture != CU_STREAM_CAPTURE_STATUS_NONE) abort();  // it would end the capture
  if (driver.error != CUDA_SUCCESS) return driver.error;
  return stream_of(stream).work.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamSynchronize(CUstream stream) {
  run(stream_of(stream), ~uint64_t{0});
  return driver.error;
}
CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  if (bytes > driver.memory_left) return CUDA_ERROR_OUT_OF_MEMORY;
  driver.memory_left -= bytes;
  driver.allocated += bytes;
  void* const memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset(memory, 0xaa, bytes);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  driver.allocations[*address] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
  driver.allocations.erase(address);
  free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned int) {
  if (context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *memory = malloc(bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* memory) {
  free(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void* memory, size_t, unsigned int) {
  return driver.registered.insert(memory).second ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
CUresult cuMemHostUnregister(void* memory) {
  return driver.registered.erase(memory) == 1 ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* memory, unsigned int) {
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return enqueue(stream, [=] { memcpy(to, reinterpret_cast<const void*>(from), bytes); });
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return enqueue(stream, [=] { memcpy(reinterpret_cast<void*>(to), from, bytes); });
}
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count, CUstream stream) {
  return enqueue(stream, [=] { std::fill_n(reinterpret_cast<uint32_t*>(address), count, value); }, !is_own(address));
}
CUresult cuEventCreate(CUevent* event, unsigned int) {
  ++driver.events;
  *event = reinterpret_cast<CUevent>(new Event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  Stream& recorded = stream_of(stream);
  *reinterpret_cast<Event*>(event) = Event{&recorded, recorded.done + recorded.work.size()};
  return driver.error;
}
CUresult cuEventSynchronize(CUevent event) {
  const Event& recorded = *reinterpret_cast<Event*>(event);
  run(*recorded.stream, recorded.position);
  return context() == nullptr ? CUDA_ERROR_INVALID_CONTEXT : driver.error;
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
  const std::string text = static_cast<const char*>(image);
  const std::string heading = "// module: ";
  if (text.compare(0, heading.size(), heading) != 0 || text.find(heading, 1) != std::string::npos ||
      text.find(".visible .entry") == std::string::npos) {
    return CUDA_ERROR_INVALID_PTX;
  }
  const bool is_newer = text.find("\n.version 7.8\n.target sm_90\n") != std::string::npos;
  const bool waits = text.find("\ngriddepcontrol.wait;\n") != std::string::npos;
  if (waits != is_newer || (waits && (driver.major < 9 || driver.version < 11080))) return CUDA_ERROR_INVALID_PTX;
  ++driver.module_loads;
  const std::string name = text.substr(heading.size(), text.find('\n') - heading.size());
  *module = reinterpret_cast<CUmodule>(new Module{name, waits});
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const emulator::Kernel kernel = emulator::find_kernel(reinterpret_cast<Module*>(module)->name, name);
  if (kernel.body == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(new emulator::Kernel(kernel));
  if (reinterpret_cast<Module*>(module)->waits) driver.early.insert(*function);
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned int blocks, unsigned int, unsigned int, unsigned int threads,
                        unsigned int, unsigned int, unsigned int, CUstream stream, void** arguments, void**) {
  const emulator::Kernel kernel = *reinterpret_cast<emulator::Kernel*>(function);
  const char* const argument = static_cast<const char*>(arguments[0]);
  const std::vector<char> copy(argument, argument + kernel.argument_bytes);
  ++driver.launches;
  return enqueue(stream, [=] { emulator::launch(kernel, copy.data(), blocks, threads); });
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  const bool is_early = config->numAttrs == 1 &&
                        config->attrs[0].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                        config->attrs[0].value.programmaticStreamSerializationAllowed == 1;
  const bool is_captured = stream_of(config->hStream).capture != CU_STREAM_CAPTURE_STATUS_NONE;
  if (!is_early || is_captured || driver.early.count(function) == 0) return CUDA_ERROR_INVALID_VALUE;
  ++driver.early_launches;
  return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                        config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream, arguments,
                        extra);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] { *reinterpret_cast<uint32_t*>(address) = value; });
}
}
