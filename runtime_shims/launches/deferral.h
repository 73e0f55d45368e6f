// Statistics of tensors that later launches leave alone can wait, so that one kernel measures many of them.
#pragma once

#include <cstdint>

#include "run/thread_state.h"
#include "statistics/statistics_queue.h"
#include "tensors/held_tensor.h"

namespace aoti_debug {

// Whether the statistics of this call's tensors may wait at all.
bool may_defer(const CallState& call);

// Whether this call's hashes after a launch may wait for those before the next launch.
bool may_join(const CallState& call);

// What keeps the tensor's memory for its statistics to wait; none where they must not.
HeldTensor held_for(const CallState& call, Phase phase, device::StatsWanted wanted, const TensorMeta& meta,
                    uint64_t handle);

// To be called when a launch has been recorded, with its first `n_values` values, and everything that is wanted before
// it is in the queue. Enqueues the statistics that wait unless it is known that the launch leaves their tensors alone.
void settle_before(const LaunchState& launch, uint32_t n_values);

}  // namespace aoti_debug
