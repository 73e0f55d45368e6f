// The tensors of a launch that are printed, measured, saved or inspected in a phase.
#pragma once

#include <cstdint>
#include <vector>

#include "aoti_debug.h"
#include "run/thread_state.h"
#include "tensors/tensor_meta.h"

namespace aoti_debug {

// A tensor slot of a launch in one phase.
struct Subject {
  uint16_t slot;
  TensorMeta meta;
};

// Those that the options of the run choose. `after`: the callee has returned without an error.
std::vector<Subject> subjects(const LaunchState& launch, const AotiDebugValue* values, Phase phase, bool after);

}  // namespace aoti_debug
