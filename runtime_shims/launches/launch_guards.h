// What launches did to the guards around the buffers of their call.
#pragma once

#include "aoti_debug.h"
#include "guards/guarded_buffers.h"
#include "run/thread_state.h"

namespace aoti_debug {

// As aoti_debug_allocate, for a buffer of a running call.
bool allocate_guarded(CallState& call, const BufferRequest& request, const char* name, void** tensor);

// Finds out, now or later, what the launch that has just ended did to the guards of its call.
void check_guards(const LaunchState& launch);

// Waits for what is still to be found out of the damage to a call's guards, and records it; ends the guards.
void finish_guards(CallState& call);

}  // namespace aoti_debug
