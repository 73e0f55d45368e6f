// Random delays before launches, so that a race of threads shows more often (AOTI_DEBUG_JITTER).
#pragma once

#include <cstdint>

#include "run/configuration.h"

namespace aoti_debug {

// Waits before a launch, or does not, as the seed says: for a random time of 10 µs to 2.6 ms, or, for at most 10 ms,
// until another thread comes to the launch of the same number: both then run at the same time.
void delay_before(const Jitter& jitter, uint32_t call, uint32_t launch);

}  // namespace aoti_debug
