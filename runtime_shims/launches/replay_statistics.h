// The statistics of calls that CUDA graphs capture: every replay measures them, and those of the last one are recorded.
#pragma once

#include <vector>

#include "run/thread_state.h"
#include "statistics/captured_statistics.h"

namespace aoti_debug {

// Has the graph that captures the call measure the tensors of a launch that wait for it, in every replay.
void measure_in_replays(CallState& call, std::vector<CapturedSight> sights);

// Records what the last replay of every graph has measured; waits for nothing.
void record_replays(Run& run);

}  // namespace aoti_debug
