// The rows of the summaries of a run.
#pragma once

#include <cstdint>

#include "run/run.h"
#include "statistics/statistics_queue.h"

namespace aoti_debug {

// Adds a tensor that was measured after a launch has written it. `replay`: the one that has measured it, of the graph
// that captured the call; 0: the call itself has.
void add_summary(Run& run, const TensorSample& sample, uint32_t replay);

}  // namespace aoti_debug
