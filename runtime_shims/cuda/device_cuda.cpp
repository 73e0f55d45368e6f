// The device half of a package for CUDA. It speaks to the driver alone, works in whatever context the model runs in,
// and takes from it some pinned memory, some device memory and, at levels 1, 2 and hash, kernels: all kept until the
// process ends, since streams may use them after any call.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "copies.h"
#include "device/device.h"
#include "driver.h"
#include "guard_reports.h"
#include "kernels.h"
#include "layout.h"
#include "shared_words.h"
#include "statistics_batch.h"
#include "statistics_ptx.h"
#include "statistics_ring.h"

namespace aoti_debug::cuda {
namespace {

constexpr int32_t kDeviceTypeCuda = 1;  // c10::DeviceType::CUDA
// Buffers for gathered elements: a large one for each of the first streams, then small ones, 128 MiB in all.
struct BufferSize {
  size_t bytes;
  size_t most_in_all;
};
constexpr BufferSize kGatherBuffers[] = {{size_t{16} << 20, size_t{96} << 20}, {size_t{1} << 20, size_t{128} << 20}};
constexpr uint32_t kBlocksPerMultiprocessor = 4;  // as in __launch_bounds__ of the statistics kernels

struct StreamKey {
  CUcontext context;
  CUstream stream;
  std::thread::id thread;  // tells per-thread default streams apart

  bool operator<(const StreamKey& other) const {
    if (context != other.context) return context < other.context;
    return stream != other.stream ? stream < other.stream : thread < other.thread;
  }
};

// What a stream reuses. Work on a stream is ordered, so one of each is enough.
struct StreamState {
  std::unique_ptr<StatisticsRing> ring;
  std::unique_ptr<GuardReports> guards;
  CUdeviceptr gather = 0;
  size_t gather_bytes = 0;
  int device = -1;
  uint32_t most_blocks = 1;
};

struct State {
  std::mutex mutex;
  std::map<StreamKey, StreamState> streams;
  Kernels kernels{statistics_ptx()};
  SharedWords<struct OfCrumbs> crumbs;
  SharedWords<struct OfFlight> flight;
  GuardKernels guards{&kernels};
  Copies copies;
  size_t gather_bytes = 0;
  CUcontext known_context = nullptr;  // for threads that have none
};

// Never destroyed: at exit the driver may be gone before it.
State& state() {
  static State* const instance = new State;
  return *instance;
}

// The state of a stream of the current context. The caller holds the lock.
StreamState& stream_state(CUcontext context, CUstream stream) {
  const std::thread::id thread = stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id();
  StreamState& entry = state().streams[StreamKey{context, stream, thread}];
  state().known_context = context;
  CUdevice device = 0;
  int multiprocessors = 0;
  if (entry.device < 0 && cuCtxGetDevice(&device) == CUDA_SUCCESS &&
      cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) == CUDA_SUCCESS) {
    entry.device = device;
    entry.most_blocks = std::min(static_cast<uint32_t>(multiprocessors) * kBlocksPerMultiprocessor, kMostBlocks);
  }
  return entry;
}

// Why the kernels cannot read a tensor; empty where they can.
const char* unreadable(const device::TensorView& view, const StreamState& stream) {
  const size_t bytes = view.element_bytes;
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16) return "its elements have an unknown size";
  if (view.data % std::min(bytes, sizeof(uint64_t)) != 0) return "its address is not aligned to its elements";
  if (view.device_index >= 0 && view.device_index != stream.device) return "it is on another device than its launch";
  return "";
}

struct Dtype {
  const char* module;  // of statistics.ptx
  uint32_t integer;
};

// False: a dtype without statistics.
bool find_dtype(int32_t scalar_type, Dtype* dtype) {
  switch (scalar_type) {
#define AOTI_DEBUG_CASE(TYPE, NUMBER)                           \
  case NUMBER:                                                  \
    *dtype = Dtype{#TYPE, integer_kind<typename TYPE::Wide>()}; \
    return true;
    AOTI_DEBUG_ELEMENT_TYPES(AOTI_DEBUG_CASE)
#undef AOTI_DEBUG_CASE
    default:
      return false;
  }
}

constexpr const char* kOpaqueModules[] = {"Opaque1", "Opaque2", "Opaque4", "Opaque8", "Opaque16"};
constexpr const char* kGatherKernels[] = {"aoti_debug_gather_1", "aoti_debug_gather_2", "aoti_debug_gather_4",
                                          "aoti_debug_gather_8", "aoti_debug_gather_16"};

// The entry for elements of 1, 2, 4, 8 or 16 bytes.
const char* by_size(const char* const (&names)[5], size_t element_bytes) {
  return names[__builtin_ctzll(element_bytes)];
}

bool launch(CUfunction function, const Grid& grid, CUstream stream, void* argument) {
  void* arguments[] = {argument};
  return cuLaunchKernel(function, grid.blocks, 1, 1, grid.threads, 1, 1, 0, stream, arguments, nullptr) == CUDA_SUCCESS;
}

// A tensor whose result has a place in the ring, and what its kernel is to do; without a module nothing.
struct Prepared {
  uint64_t number;
  const char* module;
  StatisticsJob job;
  Layout layout;
};

void prepare(const device::TensorView& view, device::StatsWanted wanted, StreamState& mine, Prepared* prepared) {
  PendingStatistics pending;
  pending.numel = static_cast<uint64_t>(view.numel);
  pending.bytes = pending.numel * view.element_bytes;
  pending.wanted = wanted;
  const bool counted = wanted != device::StatsWanted::kHash;
  Dtype dtype{"", 0};
  Layout& layout = prepared->layout;
  const char* skipped = unreadable(view, mine);
  if (counted && !find_dtype(view.dtype, &dtype)) skipped = "its dtype has no statistics";
  if (skipped[0] == '\0' && !describe(view, &layout)) skipped = "it has too many dimensions";
  pending.integer = dtype.integer;
  pending.skipped = skipped;
  prepared->module = nullptr;
  const bool shown = wanted != device::StatsWanted::kNumbers && view.numel <= 64;
  const bool measured = skipped[0] == '\0' && view.numel != 0;
  if (measured && shown) pending.value_bytes = static_cast<uint32_t>(pending.bytes);
  prepared->number = mine.ring->push(pending);
  if (!measured) return mine.ring->arrive(prepared->number);
  prepared->module = counted ? dtype.module : by_size(kOpaqueModules, view.element_bytes);
  layout.elements.chunked = !shown && is_contiguous(layout, view.element_bytes) && view.data % kChunkBytes == 0;
  StatisticsJob& job = prepared->job;
  job.elements = layout.elements;
  job.interleaving = layout.elements.chunked ? Interleaving{} : interleave(layout, view.element_bytes);
  job.chunks = (pending.bytes + kChunkBytes - 1) / kChunkBytes;
  job.shown = shown;
  mine.ring->address(prepared->number, &job);
}

// Launches those that have the module of the first; none of them has one then. The rest is for further launches.
void launch_alike(CUstream stream, StreamState& mine, bool hashed, Prepared* first, Prepared* end) {
  const char* const module = first->module;
  const Kernels::Kernel& kernel = state().kernels.get(module, "aoti_debug_statistics");
  BatchBuilder builder(hashed, mine.most_blocks);
  uint64_t numbers[StatisticsBatch::kMostTensors];
  for (Prepared* each = first; each != end; ++each) {
    if (each->module != module || !builder.add(each->job, each->layout.dims)) continue;
    numbers[builder.batch().n_tensors - 1] = each->number;
    each->module = nullptr;
  }
  mine.ring->address(&builder.batch());
  std::string_view why = kernel.error;
  if (kernel.function != nullptr) {
    const Grid grid = builder.divide();
    if (launch(kernel.function, grid, stream, &builder.batch())) return;
    why = "its statistics could not be enqueued";
  }
  for (uint32_t i = 0; i < builder.batch().n_tensors; ++i) mine.ring->skip(numbers[i], why);
}

int begin_statistics(CUstream stream, const device::TensorView* views, int count, device::StatsWanted wanted) {
  const CUcontext context = context_of(stream);
  const WithContext own(context);
  if (context == nullptr) return 0;
  const std::lock_guard<std::mutex> lock(state().mutex);
  StreamState& mine = stream_state(context, stream);
  if (mine.ring == nullptr) mine.ring = StatisticsRing::create(stream);
  if (mine.ring == nullptr) return 0;
  Prepared prepared[StatisticsBatch::kMostTensors];
  int begun = 0;
  while (begun < count && mine.ring->room() != 0) {
    Prepared* end = prepared;
    for (; begun < count && end != std::end(prepared) && mine.ring->room() != 0; ++begun) {
      prepare(views[begun], wanted, mine, end++);
    }
    for (Prepared* each = prepared; each != end; ++each) {
      while (each->module != nullptr) {
        launch_alike(stream, mine, wanted != device::StatsWanted::kNumbers, each, end);
      }
    }
  }
  return begun;
}

bool synchronize(CUstream stream) {
  const RelaxedCapture relaxed;
  return cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

int take_statistics(CUstream stream, device::StatsResult* results, int capacity, bool wait) {
  const CUcontext context = context_of(stream);
  if (context == nullptr) return 0;
  const WithContext own(context);
  const auto ring = [&] { return stream_state(context, stream).ring.get(); };
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    if (ring() == nullptr || ring()->is_empty()) return 0;
    wait = wait && !ring()->all_arrived();
  }
  if (wait && !synchronize(stream)) return -1;
  const std::lock_guard<std::mutex> lock(state().mutex);
  const int taken = ring()->take(results, capacity);
  return wait && taken == 0 && capacity > 0 && !ring()->is_empty() ? -1 : taken;
}

// The stream's buffer for gathered elements. The caller holds the lock.
bool has_gather_buffer(StreamState* stream) {
  if (stream->gather != 0) return true;
  for (const BufferSize& size : kGatherBuffers) {
    if (state().gather_bytes + size.bytes > size.most_in_all) continue;
    stream->gather = allocate(size.bytes);
    if (stream->gather == 0) continue;
    stream->gather_bytes = size.bytes;
    state().gather_bytes += size.bytes;
    return true;
  }
  return false;
}

// Gathers a buffer full at a time; the stream keeps each copy before the next gathering. The caller holds the lock.
bool gather(CUstream stream, StreamState* mine, const device::TensorView& view, const Layout& layout, size_t first_byte,
            size_t bytes, char* host) {
  if (unreadable(view, *mine)[0] != '\0' || !has_gather_buffer(mine)) return false;
  const Kernels::Kernel& kernel = state().kernels.get("Gather", by_size(kGatherKernels, view.element_bytes));
  if (kernel.function == nullptr) return false;
  const size_t end = first_byte + bytes;
  while (first_byte < end) {
    const size_t skip = first_byte % view.element_bytes;
    GatherJob job{layout.elements, {}, first_byte / view.element_bytes, 0, mine->gather};
    std::copy(std::begin(layout.dims), std::end(layout.dims), job.dims);
    const size_t part = std::min(end - first_byte + skip, mine->gather_bytes);
    job.count = (part + view.element_bytes - 1) / view.element_bytes;
    const uint64_t chunks = (part + kChunkBytes - 1) / kChunkBytes;
    if (!launch(kernel.function, grid_for(chunks, mine->most_blocks * 2), stream, &job)) return false;
    if (cuMemcpyDtoHAsync(host, mine->gather + skip, part - skip, stream) != CUDA_SUCCESS) return false;
    first_byte += part - skip;
    host += part - skip;
  }
  return true;
}

bool copy(CUstream stream, const device::TensorView& view, size_t first_byte, size_t bytes, char* host,
          uint64_t* ticket) {
  *ticket = 0;
  if (bytes == 0) return true;
  const CUcontext context = context_of(stream);
  const WithContext own(context);
  const uint64_t total = static_cast<uint64_t>(view.numel) * view.element_bytes;
  Layout layout{};
  if (context == nullptr || first_byte > total || bytes > total - first_byte || !describe(view, &layout)) return false;
  const std::lock_guard<std::mutex> lock(state().mutex);
  StreamState& mine = stream_state(context, stream);
  const bool enqueued = is_contiguous(layout, view.element_bytes)
                            ? cuMemcpyDtoHAsync(host, view.data + first_byte, bytes, stream) == CUDA_SUCCESS
                            : gather(stream, &mine, view, layout, first_byte, bytes, host);
  if (!enqueued) return false;
  *ticket = state().copies.add(stream);
  return *ticket != 0;
}

// Runs what may run out of memory; then it has failed.
template <class Body>
auto attempt(const Body& body, decltype(body()) failed) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception&) {
    return failed;
  }
}

// Runs `body` on the state of a stream, in its context.
template <class Body, class Result>
Result on_stream(void* stream, const Body& body, Result failed) noexcept {
  const CUcontext context = context_of(static_cast<CUstream>(stream));
  const WithContext own(context);
  if (context == nullptr) return failed;
  const auto locked = [&] {
    const std::lock_guard<std::mutex> lock(state().mutex);
    return body(static_cast<CUstream>(stream), stream_state(context, static_cast<CUstream>(stream)));
  };
  return attempt(locked, failed);
}

}  // namespace
}  // namespace aoti_debug::cuda

namespace aoti_debug::device {

using namespace aoti_debug::cuda;

bool owns(int32_t device_type) { return device_type == kDeviceTypeCuda; }

bool register_crumbs(void* base, size_t bytes) {
  return attempt([&] { return state().crumbs.open(base, bytes); }, false);
}

bool write_crumb(void* stream, size_t offset, uint32_t value) {
  return state().crumbs.write(static_cast<CUstream>(stream), offset, value);
}

bool register_flight(void* base, size_t bytes) {
  return attempt([&] { return state().flight.open(base, bytes); }, false);
}

bool unregister_flight() {
  CUcontext context = current_context();
  if (context == nullptr) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    context = state().known_context;
  }
  const WithContext current(context);
  return attempt([] { return state().flight.close(); }, false);
}

bool write_flight(void* stream, size_t offset, uint32_t value) {
  return state().flight.write(static_cast<CUstream>(stream), offset, value);
}

bool copy_to_flight(void* stream, uint64_t address, size_t bytes, void* host) {
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  return cuMemcpyDtoHAsync(host, address, bytes, static_cast<CUstream>(stream)) == CUDA_SUCCESS;
}

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
  static const CurrentStream ask =
      reinterpret_cast<CurrentStream>(dlsym(RTLD_DEFAULT, "aoti_torch_get_current_cuda_stream"));
  void* stream = nullptr;
  return ask != nullptr && ask(device_index, &stream) == 0 ? stream : nullptr;
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

bool begin_copy(void* stream, const TensorView& view, size_t first_byte, size_t bytes, void* host, uint64_t* ticket) {
  const auto body = [&] {
    return copy(static_cast<CUstream>(stream), view, first_byte, bytes, static_cast<char*>(host), ticket);
  };
  if (attempt(body, false)) return true;
  synchronize(static_cast<CUstream>(stream));  // a part that was enqueued does not arrive after this call
  return false;
}

bool wait_copy(uint64_t ticket) {
  if (ticket == 0) return true;
  Copies::Copy copy{};
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    if (!state().copies.remove(ticket, &copy)) return false;
  }
  if (!wait(copy)) return false;
  const auto body = [&] {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().copies.give_back(copy);
    return true;
  };
  attempt(body, false);  // at worst an event is lost
  return true;
}

bool write_memory(void* stream, uint64_t address, size_t bytes, const void* host) {
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  if (cuMemcpyHtoDAsync(address, host, bytes, static_cast<CUstream>(stream)) != CUDA_SUCCESS) return false;
  return synchronize(static_cast<CUstream>(stream));
}

void* allocate_staging(size_t bytes) {
  CUcontext context = current_context();
  if (context == nullptr) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    context = state().known_context;
  }
  const WithContext current(context);
  return allocate_pinned(bytes);
}

void free_staging(void* memory) {
  if (memory == nullptr) return;
  const RelaxedCapture relaxed;
  cuMemFreeHost(memory);  // fails where the driver has gone, and the memory with it
}

int begin_stats(void* stream, const TensorView* views, int count, StatsWanted wanted) {
  return attempt([&] { return begin_statistics(static_cast<CUstream>(stream), views, count, wanted); }, 0);
}

int take_stats(void* stream, StatsResult* results, int capacity, bool wait) {
  return attempt([&] { return take_statistics(static_cast<CUstream>(stream), results, capacity, wait); }, -1);
}

bool fill_guarded(void* stream, const GuardedMemory& memory, uint8_t poison) {
  const auto body = [&](CUstream on, StreamState&) { return state().guards.fill(on, memory, poison); };
  return on_stream(stream, body, false);
}

bool check_guards(void* stream, const GuardedLaunch& launch, const GuardedMemory* memories, uint32_t count) {
  const auto body = [&](CUstream on, StreamState& mine) {
    return state().guards.check(on, &mine.guards, launch, memories, count);
  };
  return on_stream(stream, body, false);
}

int take_damage(void* stream, GuardDamage* damages, int capacity, bool wait) {
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  if (wait && !synchronize(static_cast<CUstream>(stream))) return -1;
  const auto body = [&](CUstream, StreamState& mine) {
    return mine.guards == nullptr ? 0 : mine.guards->take(damages, capacity);
  };
  return on_stream(stream, body, 0);
}

}  // namespace aoti_debug::device
