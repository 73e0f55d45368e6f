// Launches the kernels that measure tensors.
#pragma once

#include "driver.h"
#include "statistics_batch.h"
#include "statistics_request.h"

namespace aoti_debug::cuda {

// Enqueues what the requests ask for, in as few kernels as there are dtypes. None has a module then, and those that
// could not be enqueued are skipped.
void launch_statistics(CUstream stream, StreamState& mine, bool hashed, const StatisticsScratch& scratch,
                       StatisticsRequest* begin, StatisticsRequest* end);

}  // namespace aoti_debug::cuda
