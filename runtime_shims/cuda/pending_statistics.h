// What the host knows about statistics that a device measures, and how it reads them.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "device/device.h"
#include "kernel_arguments.h"
#include "partial_numbers.h"

namespace aoti_debug::cuda {

struct PendingStatistics {
  uint64_t numel = 0;
  uint64_t bytes = 0;
  uint32_t integer = 0;  // TensorStats::integer
  uint32_t value_bytes = 0;
  device::StatsWanted wanted = device::StatsWanted::kAll;
  std::string_view skipped;  // why there are no statistics; then nothing was launched. It lives as long as the process
};

// Leaves what is behind `value_bytes` of the values as it is.
inline void finish(const PendingStatistics& pending, const StatisticsSlot& slot, device::StatsResult* result) {
  TensorStats& stats = result->stats;
  stats = TensorStats{};
  result->nan_index = result->pos_inf_index = result->neg_inf_index = 0;
  stats.numel = pending.numel;
  if (!pending.skipped.empty()) {
    stats.reserved[0] = STATS_SKIPPED;
    stats.value_bytes = static_cast<uint32_t>(std::min(pending.skipped.size(), sizeof(result->values)));
    memcpy(result->values, pending.skipped.data(), stats.value_bytes);
    return;
  }
  const Partial total = partial_in(slot);
  if (pending.wanted != device::StatsWanted::kNumbers) stats.hash = hash_finish(total.hash, pending.bytes);
  stats.value_bytes = pending.value_bytes;
  memcpy(result->values, slot.values, pending.value_bytes);
  if (pending.wanted == device::StatsWanted::kHash) {
    stats.integer = static_cast<uint8_t>(pending.integer);
    stats.mean = stats.std = quiet_nan();
    return;
  }
  set_numbers(total, pending.integer, &stats);
  if (total.nan != 0) result->nan_index = total.nan_index;
  if (total.pos_inf != 0) result->pos_inf_index = total.pos_inf_index;
  if (total.neg_inf != 0) result->neg_inf_index = total.neg_inf_index;
}

}  // namespace aoti_debug::cuda
