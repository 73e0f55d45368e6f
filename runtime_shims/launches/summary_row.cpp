#include "summary_row.h"

#include <limits>

#include "statistics/statistics.h"
#include "tensors/strided.h"

namespace aoti_debug {

void add_summary(Run& run, const TensorSample& sample, uint32_t replay) {
  const TensorStats& stats = sample.stats;
  SummaryRow row{};
  row.call = sample.id.call;
  row.replay = replay;
  row.launch = sample.id.launch;
  row.site = sample.site->id;
  row.slot = sample.slot;
  row.dtype = static_cast<int16_t>(sample.meta.dtype);
  row.numel = static_cast<uint64_t>(element_count(sample.meta));
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
