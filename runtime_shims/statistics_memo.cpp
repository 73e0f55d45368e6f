#include "statistics_memo.h"

#include "statistics.h"

namespace aoti_debug {

void StatisticsMemo::measure(const device::TensorView& view, TensorStats* stats) {
  const auto found = known_.find(view.data);
  if (found != known_.end()) {
    const Known& known = found->second;
    if (known.dtype == view.dtype && known.stats.numel == static_cast<uint64_t>(view.numel) &&
        known.stats.hash == host_hash(view)) {
      *stats = known.stats;
      return;
    }
  }
  measure_written(view, stats);
}

void StatisticsMemo::measure_written(const device::TensorView& view, TensorStats* stats) {
  host_statistics(view, stats);
  if (view.numel < kFewestElements) return;
  if (known_.size() == kMostKnown) known_.clear();
  known_[view.data] = Known{view.dtype, *stats};
}

}  // namespace aoti_debug
