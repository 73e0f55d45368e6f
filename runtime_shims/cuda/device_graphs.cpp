// What a CUDA graph holds of a call that it captures (device.h).
#include <algorithm>

#include "captured_call.h"
#include "stream_state.h"

namespace aoti_debug::device {

using namespace aoti_debug::cuda;

void* begin_captured(void* stream, CrumbWord first, size_t replays_offset) {
  const auto begin = [&](CUstream captured, StreamState&) -> void* {
    ReplayJob job{};
    job.count = state().crumbs.address(captured, replays_offset);
    job.crumb = state().crumbs.address(captured, first.offset);
    job.value = first.value;
    return job.crumb == 0 ? nullptr : CapturedCall::begin(captured, job).release();
  };
  return on_stream<decltype(begin), void*>(stream, begin, nullptr);
}

bool add_stats(void* captured, void* stream, const TensorView& view) {
  const auto add = [&](CUstream of, StreamState&) {
    return static_cast<CapturedCall*>(captured)->add_statistics(of, view);
  };
  return on_stream(stream, add, false);
}

void keep_stats(void* captured, void* stream, const TensorView* views, int count, StatsWanted wanted, uint32_t replays,
                const void** kept) {
  const auto keep = [&](CUstream of, StreamState&) {
    static_cast<CapturedCall*>(captured)->keep_statistics(of, views, count, wanted, replays, kept);
    return true;
  };
  std::fill_n(kept, count, nullptr);
  on_stream(stream, keep, false);
}

Kept read_last(const void* kept, StatsResult* result, uint32_t* replay) {
  return cuda::read_last(*static_cast<const KeptStatistics*>(kept), result, replay);
}

Kept read_replay(const void* kept, uint32_t replay, StatsResult* result) {
  return cuda::read_replay(*static_cast<const KeptStatistics*>(kept), replay, result);
}

const CapturedWatch* add_watch(void* captured, void* stream, const WatchNode* nodes, uint32_t count) {
  const auto add = [&](CUstream of, StreamState&) {
    return static_cast<CapturedCall*>(captured)->add_watch(of, nodes, count);
  };
  return on_stream<decltype(add), const CapturedWatch*>(stream, add, nullptr);
}

}  // namespace aoti_debug::device
