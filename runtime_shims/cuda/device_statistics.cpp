// Statistics of tensors in device memory (device.h): launches their kernels and takes their results.
#include <iterator>
#include <mutex>

#include "statistics_launch.h"
#include "stream_state.h"

namespace aoti_debug::cuda {
namespace {

// Gives the request's result a place in the ring; returns its number.
uint64_t place(StatisticsRing& ring, StatisticsRequest* request) {
  const uint64_t number = ring.push(request->pending);
  if (request->module == nullptr) {
    ring.arrive(number);
  } else {
    ring.address(number, &request->job);
  }
  return number;
}

int begin_statistics(CUstream stream, const device::TensorView* views, int count, device::StatsWanted wanted) {
  const CUcontext context = context_of(stream);
  const WithContext own(context);
  if (context == nullptr) return 0;
  const std::lock_guard<std::mutex> lock(state().mutex);
  StreamState& mine = stream_state(context, stream);
  if (mine.ring == nullptr) mine.ring = StatisticsRing::create(stream);
  if (mine.ring == nullptr) return 0;
  static StatisticsRequest requests[StatisticsBatch::kMaxTensors];  // of whoever has the lock
  uint64_t numbers[StatisticsBatch::kMaxTensors];
  int begun = 0;
  while (begun < count && mine.ring->room() != 0) {
    size_t n = 0;
    for (; begun < count && n != std::size(requests) && mine.ring->room() != 0; ++begun, ++n) {
      request_statistics(views[begun], wanted, mine, &requests[n]);
      numbers[n] = place(*mine.ring, &requests[n]);
    }
    const bool hashed = wanted != device::StatsWanted::kNumbers;
    launch_statistics(stream, mine, hashed, mine.ring->scratch(), requests, requests + n);
    for (size_t i = 0; i < n; ++i) {
      if (!requests[i].pending.skipped.empty()) mine.ring->skip(numbers[i], requests[i].pending.skipped);
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

// Asks the driver for nothing: the stream may be gone.
void forget_stats(void* stream) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  for (auto& [key, of_stream] : state().streams) {
    if (key.stream == stream && of_stream.ring != nullptr) of_stream.ring->forget();
  }
}

void end_run() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  for (auto& [key, of_stream] : state().streams) {
    if (of_stream.ring != nullptr) of_stream.ring->forget();
    const bool owes = of_stream.guards != nullptr && of_stream.guards->owes;
    if (owes) static_cast<void>(of_stream.guards.release());  // the device may still write to its memory
  }
  state().kernels.forget_failures();
}

}  // namespace aoti_debug::device
