// Calls the inspector of the process on the tensors of launches (AOTI_DEBUG_INSPECT).
#pragma once

#include "aoti_debug.h"
#include "run/thread_state.h"

namespace aoti_debug {

// Calls it on every tensor of a phase, in the order of the arguments. One that asks for it, or that changes a tensor in
// host memory, stops the run.
void call_inspector(const LaunchState& launch, const AotiDebugValue* values, Phase phase);

}  // namespace aoti_debug
