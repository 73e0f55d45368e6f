// The statistics of calls that CUDA graphs capture: every replay measures them, and those of the last one are recorded.
// Of what is summarised, those of every replay are.
#pragma once

#include <vector>

#include "run/thread_state.h"
#include "statistics/captured_statistics.h"

namespace aoti_debug {

// Has the graph that captures the call measure the tensors of a launch that wait for it, in every replay.
void measure_in_replays(CallState& call, std::vector<CapturedSample> samples);

// Records what the last replay of every graph has measured; waits for nothing.
void record_replays(Run& run);

// Adds to the summaries what replays have measured since the last time; waits for nothing. It must be called often:
// replays leave no more than CapturedStatistics::kMaxResults results.
void summarise_replays(Run& run);

}  // namespace aoti_debug
