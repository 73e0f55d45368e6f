// Skips a launch, or replaces its results, as the instructions of the run say (substitutions.h).
#pragma once

#include "aoti_debug.h"
#include "run/thread_state.h"

namespace aoti_debug {

// Before a launch, whose arguments have been recorded: notes what is done, waits. Returns what its caller is to do.
AotiDebugLaunchAction act_before(const LaunchState& launch);

// After a launch that has returned, or was skipped, and was inspected: writes what replaces its results.
void replace_results(const LaunchState& launch, const AotiDebugValue* values);

}  // namespace aoti_debug
