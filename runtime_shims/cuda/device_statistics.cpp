// Statistics of tensors in device memory (device.h): launches their kernels and takes their results.
#include <iterator>
#include <mutex>
#include <string_view>

#include "statistics_batch.h"
#include "statistics_request.h"
#include "stream_state.h"

namespace aoti_debug::cuda {
namespace {

// A tensor whose result has a place in the ring.
struct Prepared {
  uint64_t number;
  StatisticsRequest request;
};

void prepare(const device::TensorView& view, device::StatsWanted wanted, StreamState& mine, Prepared* prepared) {
  StatisticsRequest& request = prepared->request = request_statistics(view, wanted, mine);
  prepared->number = mine.ring->push(request.pending);
  if (request.module == nullptr) return mine.ring->arrive(prepared->number);
  mine.ring->address(prepared->number, &request.job);
}

// Launches those that have the module of the first; none of them has one then. The rest is for further launches.
void launch_alike(CUstream stream, StreamState& mine, bool hashed, Prepared* first, Prepared* end) {
  const char* const module = first->request.module;
  const Kernels::Kernel& kernel = state().kernels.get(module, "aoti_debug_statistics");
  BatchBuilder builder(hashed, mine.most_blocks);
  uint64_t numbers[StatisticsBatch::kMostTensors];
  for (Prepared* each = first; each != end; ++each) {
    StatisticsRequest& request = each->request;
    if (request.module != module || !builder.add(request.job, request.layout.dims)) continue;
    numbers[builder.batch().n_tensors - 1] = each->number;
    request.module = nullptr;
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
      while (each->request.module != nullptr) {
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
