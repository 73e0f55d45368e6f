#include "summary_row.h"

#include <limits>

#include "statistics/statistics.h"
#include "tensors/strided.h"

namespace aoti_debug {

void add_summary(Run& run, const Sight& sight, uint32_t replay) {
  const TensorStats& stats = sight.stats;
  SummaryRow row{};
  row.call = sight.id.call;
  row.replay = replay;
  row.launch = sight.id.launch;
  row.site = sight.site->id;
  row.slot = sight.slot;
  row.dtype = static_cast<int16_t>(sight.meta.dtype);
  row.numel = static_cast<uint64_t>(element_count(sight.meta));
  row.n_nan = stats.n_nan;
  row.n_pos_inf = stats.n_pos_inf;
  row.n_neg_inf = stats.n_neg_inf;
  row.n_zero = stats.n_zero;
  const bool finite = row.numel > row.n_nan + row.n_pos_inf + row.n_neg_inf;
  row.min = finite ? extremum_value(stats, stats.min_bits) : std::numeric_limits<double>::quiet_NaN();
  row.max = finite ? extremum_value(stats, stats.max_bits) : std::numeric_limits<double>::quiet_NaN();
  row.mean = stats.mean;
  row.std = stats.std;
  run.summaries.add(row);
}

}  // namespace aoti_debug
