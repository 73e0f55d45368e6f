// Looks at the watched arguments of one launch, and does what a hit asks for.
#pragma once

#include <cstdint>

#include "aoti_debug.h"
#include "run/thread_state.h"

namespace aoti_debug {

// Measures what is watched in a phase: host tensors at once, those of a device in the order of the stream.
void watch(const LaunchState& launch, const AotiDebugValue* values, Phase phase);

// Looks at statistics that a device has measured for a watchpoint.
void look_at_watched(ThreadState& thread, const TensorSample& sample);

// Looks at what replays of CUDA graphs have found since the last time.
void look_at_replays(Run& run);

// Looks at what devices had yet to measure for watchpoints when the last call of the run ended. With `wait`, waits for
// it.
void look_at_remaining(Run& run, bool wait);

}  // namespace aoti_debug
