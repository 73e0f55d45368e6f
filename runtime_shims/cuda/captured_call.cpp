#include "captured_call.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "statistics_launch.h"
#include "stream_state.h"

namespace aoti_debug::cuda {
namespace {

struct DestroyStream {
  void operator()(CUstream stream) const { cuStreamDestroy(stream); }
};
using OwnStream = std::unique_ptr<std::remove_pointer_t<CUstream>, DestroyStream>;

// nullptr: there is none to be had.
OwnStream make_stream() {
  CUstream stream = nullptr;
  return OwnStream(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS ? stream : nullptr);
}

// A stream of its own fills it: one that captures would fill it again in every replay.
CUdeviceptr allocate_zeroed(size_t bytes) {
  const RelaxedCapture relaxed;
  const CUdeviceptr address = allocate(bytes);
  if (address == 0) return 0;
  const OwnStream stream = make_stream();
  const bool filled = stream != nullptr &&
                      cuMemsetD32Async(address, 0, bytes / sizeof(uint32_t), stream.get()) == CUDA_SUCCESS &&
                      cuStreamSynchronize(stream.get()) == CUDA_SUCCESS;
  if (filled) return address;
  cuMemFree(address);
  return 0;
}

// Mapped rather than allocated by the driver, so that it can be read when the driver is gone.
CUdeviceptr map_zeroed(size_t bytes) {
  const RelaxedCapture relaxed;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  const unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (cuMemHostRegister(memory, bytes, flags) == CUDA_SUCCESS) {
    const CUdeviceptr address = device_address(memory);
    if (address == reinterpret_cast<CUdeviceptr>(memory)) return address;
    cuMemHostUnregister(memory);
  }
  munmap(memory, bytes);
  return 0;
}

// The graph that a stream captures into, and the nodes that its next one will follow.
struct Capture {
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> after;
};

// `Query` is the type of cuStreamGetCaptureInfo, which CUDA 13 has given another parameter.
template <class Query>
CUresult query_capture(Query query, CUstream stream, CUstreamCaptureStatus* status, CUgraph* graph,
                       const CUgraphNode** nodes, size_t* count) {
  constexpr bool knows_edges = !std::is_invocable_v<Query, CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                                    const CUgraphNode**, size_t*>;
  if constexpr (knows_edges) {
    return query(stream, status, nullptr, graph, nodes, nullptr, count);
  } else {
    return query(stream, status, nullptr, graph, nodes, count);
  }
}

// Without a graph where the stream captures nothing, or where edges say more than that one node follows another.
Capture capture_of(CUstream stream) {
  Capture capture;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  CUgraph graph = nullptr;
  const CUresult result = query_capture(cuStreamGetCaptureInfo, stream, &status, &graph, &nodes, &count);
  if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return capture;
  capture.graph = graph;
  capture.after.assign(nodes, nodes + count);
  return capture;
}

// Adds a kernel of one thread that follows what the stream has captured so far; what is captured later does not follow
// it.
bool add_beside(CUstream stream, CUfunction function, void* job) {
  const Capture capture = capture_of(stream);
  if (capture.graph == nullptr) return false;
  void* arguments[] = {job};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function;
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  CUgraphNode added = nullptr;
  return cuGraphAddKernelNode(&added, capture.graph, capture.after.data(), capture.after.size(), &params) ==
         CUDA_SUCCESS;
}

constexpr const char* kModule = "Graphs";

static_assert(sizeof(StatisticsSlot::words) == 256 && sizeof(StatisticsSlot) == 1280, "as docs/performance.md says");

// The content hash of the values; that of the tensor where there are none.
uint64_t hash_of_values(const device::StatsResult& result) {
  const uint32_t bytes = result.stats.value_bytes;
  if (bytes == 0) return result.stats.hash;
  uint64_t sum = 0;
  for (uint32_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    memcpy(&word, result.values + at, std::min<size_t>(sizeof(word), bytes - at));
    sum += hash_term(word, at / sizeof(word));
  }
  return hash_finish(sum, bytes);
}

}  // namespace

CapturedCall::CapturedCall() : device_(allocate_zeroed), host_(map_zeroed) {}

std::unique_ptr<CapturedCall> CapturedCall::begin(CUstream stream, ReplayJob job) {
  const Kernels::Kernel& kernel = state().kernels.get(kModule, "aoti_debug_begin_replay");
  if (kernel.function == nullptr) return nullptr;
  std::unique_ptr<CapturedCall> call(new CapturedCall);
  job.replays = call->replays_ = call->device_.take(sizeof(uint32_t));
  if (job.replays == 0) return nullptr;
  return launch_kernel(kernel.function, Grid{1, 1}, stream, &job) ? std::move(call) : nullptr;
}

bool CapturedCall::take_scratch() {
  if (scratch_ == 0) scratch_ = device_.take(StatisticsScratch::kBytes);
  return scratch_ != 0;
}

StatisticsScratch CapturedCall::scratch(uint32_t replays) const { return {scratch_, replays_, replays - 1}; }

bool CapturedCall::add_statistics(CUstream stream, const device::TensorView& view) {
  StreamState& mine = stream_state(current_context(), stream);
  StatisticsRequest request;
  request_statistics(view, device::StatsWanted::kNumbers, mine, &request);
  const CUdeviceptr slot = take_scratch() ? device_.take(slot_bytes(false)) : 0;
  if (request.module == nullptr || slot == 0) return false;
  request.job.slot = slot;
  launch_statistics(stream, mine, false, scratch(1), &request, &request + 1);
  if (!request.pending.skipped.empty()) return false;
  watched_ = WatchJob{};
  watched_.slot = slot;
  watched_.replays = replays_;
  watched_.numel = request.pending.numel;
  watched_.integer = request.pending.integer;
  return true;
}

const CapturedWatch* CapturedCall::add_watch(CUstream stream, const WatchNode* nodes, uint32_t count) {
  watched_.counts = device_.take(sizeof(WatchCounts));
  watched_.record = host_.take(sizeof(CapturedWatch));
  const Kernels::Kernel& kernel = state().kernels.get(kModule, "aoti_debug_watch");
  if (kernel.function == nullptr || watched_.counts == 0 || watched_.record == 0) return nullptr;
  std::copy(nodes, nodes + count, watched_.nodes);
  watched_.n_nodes = count;
  if (!add_beside(stream, kernel.function, &watched_)) return nullptr;
  return reinterpret_cast<const CapturedWatch*>(watched_.record);
}

const KeptStatistics* CapturedCall::keep(StatisticsRequest* request, uint32_t replays) {
  KeptStatistics& kept = kept_.emplace_back();
  if (request->module != nullptr) {
    const size_t bytes = replays * size_t{slot_bytes(request->job.shown != 0)};
    const CUdeviceptr slots = take_scratch() ? host_.take(bytes) : 0;
    request->job.slot = slots;
    kept.slots = reinterpret_cast<const uint8_t*>(slots);
    kept.replays = replays;
    if (slots == 0) request->module = nullptr;
    if (slots == 0) request->pending.skipped = "there is no memory for its statistics";
  }
  kept.pending = request->pending;
  return &kept;
}

void CapturedCall::keep_statistics(CUstream stream, const device::TensorView* views, int count,
                                   device::StatsWanted wanted, uint32_t replays, const void** kept) {
  StreamState& mine = stream_state(current_context(), stream);
  StatisticsRequest requests[StatisticsBatch::kMaxTensors];
  for (int first = 0; first < count;) {
    const int n = std::min(count - first, static_cast<int>(std::size(requests)));
    for (int i = 0; i < n; ++i) {
      request_statistics(views[first + i], wanted, mine, &requests[i]);
      kept[first + i] = keep(&requests[i], replays);
    }
    const bool hashed = wanted != device::StatsWanted::kNumbers;
    launch_statistics(stream, mine, hashed, scratch(replays), requests, requests + n);
    for (int i = 0; i < n; ++i) kept_[kept_.size() - static_cast<size_t>(n - i)].pending = requests[i].pending;
    first += n;
  }
}

device::Kept read_replay(const KeptStatistics& kept, uint32_t replay, device::StatsResult* result) {
  StatisticsSlot copy{};
  const PendingStatistics& pending = kept.pending;
  if (!kept.is_measured()) {
    finish(pending, copy, result);
    return device::Kept::kWhole;
  }
  const StatisticsSlot& slot = kept.slot_of(replay);
  bool earlier = false;
  for (uint32_t i = 0; i < kPartialWords; ++i) {
    copy.words[i] = __atomic_load_n(&slot.words[i], __ATOMIC_ACQUIRE);
    const auto later_by = static_cast<int32_t>(static_cast<uint32_t>(copy.words[i] >> 32) - replay);
    if (later_by > 0) return device::Kept::kTorn;
    earlier = earlier || later_by < 0;
  }
  if (earlier) return device::Kept::kNothing;
  memcpy(copy.values, slot.values, pending.value_bytes);
  finish(pending, copy, result);
  if (hash_of_values(*result) != result->stats.hash) result->stats.value_bytes = 0;  // a later replay is storing them
  return device::Kept::kWhole;
}

device::Kept read_last(const KeptStatistics& kept, device::StatsResult* result, uint32_t* replay) {
  *replay = 0;
  if (!kept.is_measured()) return read_replay(kept, 0, result);
  uint32_t newest = 0;
  for (uint32_t i = 0; i < kept.replays; ++i) {
    const uint64_t first = __atomic_load_n(&kept.slot_of(i).words[0], __ATOMIC_ACQUIRE);
    newest = std::max(newest, static_cast<uint32_t>(first >> 32));
  }
  if (newest == 0) return device::Kept::kNothing;
  for (uint32_t age = 0; age < std::min(kept.replays, newest); ++age) {
    if (read_replay(kept, newest - age, result) != device::Kept::kWhole) continue;
    *replay = newest - age;
    return device::Kept::kWhole;
  }
  return device::Kept::kTorn;
}

}  // namespace aoti_debug::cuda
