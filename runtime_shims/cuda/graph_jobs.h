// What the host hands to the kernels that a CUDA graph holds beside the model's.
#pragma once

#include "formats/watch_nodes.h"
#include "kernel_arguments.h"

namespace aoti_debug::cuda {

// Begins a replay: counts it, and stores the breadcrumb before its first launch.
struct ReplayJob {
  uint64_t replays;  // device address of a uint32_t
  uint64_t count;    // of one in host memory, a copy of it
  uint64_t crumb;    // of one in host memory
  uint32_t value;    // what is stored there
};

// How often the condition of a watchpoint was looked at, in device memory.
struct WatchCounts {
  uint64_t evaluated, hits;
};

// Looks at the condition of a watchpoint in the statistics that a kernel before has stored.
struct WatchJob {
  uint64_t slot;     // device address of the StatisticsSlot
  uint64_t replays;  // of a uint32_t
  uint64_t counts;   // of the WatchCounts
  uint64_t record;   // of the CapturedWatch, in host memory
  uint64_t numel;
  uint32_t integer;  // TensorStats::integer
  uint32_t n_nodes;
  WatchNode nodes[kMaxWatchNodes];
};
static_assert(sizeof(WatchJob) <= 4096, "what a kernel can be passed");

}  // namespace aoti_debug::cuda
