// Statistics of a tensor in host memory.
#pragma once

#include "device/device.h"

namespace aoti_debug {

// Counts, extrema, moments and the content hash, in one pass over the elements. Fills the fields of `stats` that
// describe the elements. The dtype must have values (Kind::kBool to Kind::kComplex).
void host_statistics(const device::TensorView& view, TensorStats* stats);

// TensorStats::min_bits or max_bits as a number.
double extremum_value(const TensorStats& stats, uint64_t bits);

}  // namespace aoti_debug
