// The statistics that are wanted of a tensor, before a kernel measures them.
#pragma once

#include "layout.h"
#include "statistics_ring.h"
#include "stream_state.h"

namespace aoti_debug::cuda {

struct StatisticsRequest {
  PendingStatistics pending;
  const char* module = nullptr;  // of statistics.ptx; nullptr: there is nothing to measure
  StatisticsJob job{};           // without the place of its result
  Layout layout;
};

// Makes `request` that of a tensor, whatever it was before.
void request_statistics(const device::TensorView& view, device::StatsWanted wanted, const StreamState& stream,
                        StatisticsRequest* request);

}  // namespace aoti_debug::cuda
