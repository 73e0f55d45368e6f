// The levels above 0 of one launch: what is printed, measured, hashed and saved, before it and after it.
#pragma once

#include <cstdint>

#include "aoti_debug.h"
#include "run/thread_state.h"

namespace aoti_debug {

// Everything of a phase. `values` may be read as far as `look` says; `succeeded` is whether the callee has returned
// without an error (in the phase after). A host tensor is measured or copied when this returns; a device tensor is as
// it was at this point of the stream.
void inspect(const LaunchState& launch, const AotiDebugValue* values, Phase phase, bool succeeded, uint64_t now_ns);

// Saves the tensors of a launch that a watchpoint hit in a phase: before it, what it reads; after it, also what it has
// written. Inputs that it does not write count as they were before it.
void save_launch(const LaunchState& launch, const AotiDebugValue* values, Phase phase);

// Shows what the device has measured by now. With `wait`, all that it was asked for.
void show_measured(CallState& call, bool wait);

}  // namespace aoti_debug
