// The statistics of a tensor as numbers; the same on the host and on a device.
#pragma once

#include "host_device.h"
#include "journal_format.h"

namespace aoti_debug {

// TensorStats::min_bits or max_bits as a number.
AOTI_DEBUG_HOST_DEVICE inline double extremum_value(const TensorStats& stats, uint64_t bits) {
  if (stats.integer == 1) return static_cast<double>(static_cast<int64_t>(bits));
  if (stats.integer == 2) return static_cast<double>(bits);
  double value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// A WatchStatistic as a number. min, max and absmax take infinities into account and leave out NaN, which they are
// where every element is one; mean and std are over the finite elements.
AOTI_DEBUG_HOST_DEVICE inline double statistic_value(uint32_t statistic, const TensorStats& stats) {
  const double infinity = __builtin_huge_val();
  const double nothing = __builtin_nan("");
  const uint64_t n_inf = stats.n_pos_inf + stats.n_neg_inf;
  const bool any_finite = stats.numel > stats.n_nan + n_inf;
  switch (statistic) {
    case WATCH_MIN:
      if (stats.n_neg_inf != 0) return -infinity;
      return any_finite ? extremum_value(stats, stats.min_bits) : n_inf != 0 ? infinity : nothing;
    case WATCH_MAX:
      if (stats.n_pos_inf != 0) return infinity;
      return any_finite ? extremum_value(stats, stats.max_bits) : n_inf != 0 ? -infinity : nothing;
    case WATCH_ABSMAX: {
      if (n_inf != 0) return infinity;
      if (!any_finite) return nothing;
      const double least = __builtin_fabs(extremum_value(stats, stats.min_bits));
      const double most = __builtin_fabs(extremum_value(stats, stats.max_bits));
      return least > most ? least : most;
    }
    case WATCH_MEAN:
      return any_finite ? stats.mean : nothing;
    case WATCH_STD:
      return any_finite ? stats.std : nothing;
    case WATCH_NAN:
      return static_cast<double>(stats.n_nan);
    case WATCH_INF:
      return static_cast<double>(n_inf);
    case WATCH_POSINF:
      return static_cast<double>(stats.n_pos_inf);
    case WATCH_NEGINF:
      return static_cast<double>(stats.n_neg_inf);
    case WATCH_NONFINITE:
      return static_cast<double>(stats.n_nan + n_inf);
    case WATCH_ZEROS:
      return static_cast<double>(stats.n_zero);
    case WATCH_NUMEL:
      return static_cast<double>(stats.numel);
    default:
      return nothing;
  }
}

}  // namespace aoti_debug
