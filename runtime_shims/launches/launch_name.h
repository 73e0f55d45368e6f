// The lines that name a launch at level 3 on a device.
#pragma once

#include "run/thread_state.h"

namespace aoti_debug {

// Adds the line to those that are yet to be written, where the run prints.
void add_headline(const LaunchState& launch, Phase phase);

// Whether what is yet to be written has waited long enough.
bool is_flush_due(const ThreadState& thread, uint64_t now_ns);

// Both: adds the line, and writes what is due.
void name_launch(const LaunchState& launch, Phase phase, uint64_t now_ns);

}  // namespace aoti_debug
