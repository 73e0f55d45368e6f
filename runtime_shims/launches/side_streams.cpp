#include "side_streams.h"

#include <algorithm>
#include <utility>

#include "device/device.h"
#include "run/run.h"

namespace aoti_debug {
namespace {

__attribute__((noinline)) Lane new_lane(const CallState& call, void* stream) {
  Run& run = *call.run;
  Lane lane;
  lane.stream = stream;
  if (call.queue != nullptr) lane.queue = &run.stats_queue(stream, call.thread->id);
  if (run.crumbs.is_open() && !call.capturing) {
    lane.stream_slot = run.crumbs.slot(stream, call.model);
    lane.crumbs = lane.stream_slot != Crumbs::kNoSlot;
    lane.paced = lane.crumbs && run.crumbs.claim(lane.stream_slot);
  }
  return lane;
}

// Guards of all buffers are compared after each launch, whichever stream it runs on: one stream works at a time.
void exchange(CallState& call, Lane& lane) {
  if (call.guards != nullptr) device::wait_stream(call.stream);
  std::swap(static_cast<Lane&>(call), lane);
}

}  // namespace

bool enter_stream(CallState& call, void* stream) {
  if (call.side != 0 || stream == call.stream) return false;
  auto lane =
      std::find_if(call.others.begin(), call.others.end(), [stream](const Lane& l) { return l.stream == stream; });
  if (lane == call.others.end()) lane = call.others.insert(lane, new_lane(call, stream));
  exchange(call, *lane);
  call.side = static_cast<size_t>(lane - call.others.begin()) + 1;
  return true;
}

void leave_stream(CallState& call) {
  if (call.side == 0) return;
  exchange(call, call.others[call.side - 1]);
  call.side = 0;
}

}  // namespace aoti_debug
