// Skips a launch, replaces its results, or rounds what it reads and writes, as the instructions of the run say
// (substitutions.h).
#pragma once

#include "aoti_debug.h"
#include "run/thread_state.h"

namespace aoti_debug {

// Before a launch, whose arguments have been recorded: notes what is done, waits. Returns what its caller is to do.
AotiDebugLaunchAction act_before(const LaunchState& launch, const AotiDebugValue* values);

// After a launch that has returned, or was skipped, and was inspected: writes what replaces its results, rounds them,
// and gives back what it read.
void replace_results(const LaunchState& launch, const AotiDebugValue* values);

}  // namespace aoti_debug
