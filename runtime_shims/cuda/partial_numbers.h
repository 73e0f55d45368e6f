// From the merged Partial of a whole tensor to the numbers that are recorded; the same on the host and on the device.
#pragma once

#include <cmath>

#include "formats/journal_format.h"
#include "statistics_math.h"

namespace aoti_debug::cuda {

AOTI_DEBUG_FN double quiet_nan() { return bits_as<double>(uint64_t{0x7ff8000000000000u}); }

// Counts, extrema and moments. `integer` is TensorStats::integer.
AOTI_DEBUG_FN void set_numbers(const Partial& total, uint32_t integer, TensorStats* stats) {
  stats->integer = static_cast<uint8_t>(integer);
  stats->mean = stats->std = quiet_nan();
  stats->n_nan = total.nan;
  stats->n_pos_inf = total.pos_inf;
  stats->n_neg_inf = total.neg_inf;
  stats->n_zero = total.zero;
  if (total.finite == 0) {
    if (integer == 0) stats->min_bits = stats->max_bits = bits_as<uint64_t>(quiet_nan());
    return;
  }
  stats->min_bits = total.min;
  stats->max_bits = total.max;
  stats->min_index = total.min_index;
  stats->max_index = total.max_index;
  const int scale = static_cast<int>(total.exponent) - Moments::unit_exponent;
  stats->mean = total.mean;
  stats->std = sqrt(total.squares / static_cast<double>(total.finite));
  if (scale == 0) return;
  stats->mean = ldexp(stats->mean, scale);
  stats->std = ldexp(stats->std, scale);
}

}  // namespace aoti_debug::cuda
