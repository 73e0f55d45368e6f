// Breadcrumbs of a call: in the slot of its stream or, under CUDA graph capture, as nodes of the graph.
#pragma once

#include "run/thread_state.h"

namespace aoti_debug {

// Gives the call its slot. A call that is captured has one of its own, since its replays may run at any time; its first
// node says that nothing of it has completed.
void begin_breadcrumbs(CallState& call);

// The call enqueues no more. What was captured counts as completed until it is replayed: capturing runs nothing.
void end_breadcrumbs(CallState& call);

}  // namespace aoti_debug
