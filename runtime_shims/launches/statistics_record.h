// The journal's records of tensors that were measured.
#pragma once

#include <cstdint>

#include "run/thread_state.h"
#include "statistics/statistics_queue.h"

namespace aoti_debug {

void record_statistics(ThreadState& thread, const TensorSample& sample, uint64_t now_ns);

// Of a call that a CUDA graph has captured.
void record_replay_statistics(ThreadState& thread, const ReplayStats& replay, const TensorSample& sample,
                              uint64_t now_ns);

}  // namespace aoti_debug
