// Statistics of a tensor in host memory.
#pragma once

#include "device/device.h"

namespace aoti_debug {

// Counts, extrema, moments and the content hash, in one pass over the elements. Fills the fields of `stats` that
// describe the elements. The dtype must have values (Kind::kBool to Kind::kComplex).
void host_statistics(const device::TensorView& view, TensorStats* stats);

}  // namespace aoti_debug
