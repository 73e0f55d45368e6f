// Launches of a call on other streams than its own: breadcrumbs, statistics, saved tensors and guards of a launch go to
// the stream that it runs on. A call is the lane of the stream that is in force.
#pragma once

#include "run/thread_state.h"

namespace aoti_debug {

// Puts the lane of the stream in force, which the first launch on it makes. False where it is in force already.
bool enter_stream(CallState& call, void* stream);

// Puts the call's own stream in force again.
void leave_stream(CallState& call);

// Does something with each stream of the call in force, its own first.
template <class Work>
void for_each_stream(CallState& call, const Work& work) {
  work(call);
  for (Lane& lane : call.others) {
    std::swap(static_cast<Lane&>(call), lane);
    work(call);
    std::swap(static_cast<Lane&>(call), lane);
  }
}

}  // namespace aoti_debug
