// Statistics of tensors in device memory (device.h): launches their kernels and takes their results.
#include <iterator>
#include <mutex>
#include <string_view>

#include "statistics_batch.h"
#include "stream_state.h"

namespace aoti_debug::cuda {
namespace {

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
    if (launch_kernel(kernel.function, grid, stream, &builder.batch())) return;
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

}  // namespace
}  // namespace aoti_debug::cuda

namespace aoti_debug::device {

using namespace aoti_debug::cuda;

int begin_stats(void* stream, const TensorView* views, int count, StatsWanted wanted) {
  return attempt([&] { return begin_statistics(static_cast<CUstream>(stream), views, count, wanted); }, 0);
}

int take_stats(void* stream, StatsResult* results, int capacity, bool wait) {
  return attempt([&] { return take_statistics(static_cast<CUstream>(stream), results, capacity, wait); }, -1);
}

}  // namespace aoti_debug::device
