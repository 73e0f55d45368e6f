// The thread that looks at what replays of CUDA graphs leave, while the run goes on.
#pragma once

#include "run/run.h"

namespace aoti_debug {

// Starts it, once: the run has captured a call whose replays are watched or summarised.
void observe_replays(Run& run);

}  // namespace aoti_debug
