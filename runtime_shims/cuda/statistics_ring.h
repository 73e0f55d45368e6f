// The results of one stream's statistics kernels: a ring in pinned host memory that the device writes.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "driver.h"
#include "kernel_arguments.h"
#include "partial_numbers.h"

namespace aoti_debug::cuda {

constexpr uint32_t kRingSlots = 1024;
constexpr uint32_t kMostBlocks = 1024;

// What the host knows about a result that is on its way.
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
  result->nan_index = total.nan_index;
  result->pos_inf_index = total.pos_inf_index;
  result->neg_inf_index = total.neg_inf_index;
}

class StatisticsRing {
 public:
  // nullptr where memory is short.
  static std::unique_ptr<StatisticsRing> create(CUstream stream) {
    std::unique_ptr<StatisticsRing> ring(new StatisticsRing);
    ring->slots_ = static_cast<StatisticsSlot*>(allocate_pinned(kRingSlots * sizeof(StatisticsSlot)));
    if (ring->slots_ == nullptr) return nullptr;
    memset(ring->slots_, 0, kRingSlots * sizeof(StatisticsSlot));
    ring->device_slots_ = device_address(ring->slots_);
    ring->scratch_ = allocate(kCounterBytes + kMostPartials * sizeof(Partial));
    const bool usable = ring->device_slots_ != 0 && ring->scratch_ != 0 &&
                        cuMemsetD32Async(ring->scratch_, 0, kCounterBytes / sizeof(uint32_t), stream) == CUDA_SUCCESS;
    if (usable) return ring;
    if (ring->scratch_ != 0) cuMemFree(ring->scratch_);
    cuMemFreeHost(ring->slots_);
    return nullptr;
  }

  uint64_t room() const { return kRingSlots - (head_ - tail_); }
  bool is_empty() const { return head_ == tail_; }
  bool all_arrived() const {
    for (uint64_t number = tail_; number != head_; ++number) {
      if (!has_arrived(number)) return false;
    }
    return true;
  }

  // Adds a result that is going to be launched, for which there must be room; returns its number.
  uint64_t push(const PendingStatistics& pending) {
    pending_[head_ % kRingSlots] = pending;
    return head_++;
  }

  // That result needs no device: it is of no elements, or is skipped.
  void arrive(uint64_t number) {
    StatisticsSlot& slot = slots_[number % kRingSlots];
    for (uint64_t& word : slot.words) word = with_ticket(0, ticket(number));
  }
  void skip(uint64_t number, std::string_view why) {
    pending_[number % kRingSlots].skipped = why;
    arrive(number);
  }

  // Where a kernel is to store that result.
  void address(uint64_t number, StatisticsJob* job) const {
    job->slot = device_slots_ + number % kRingSlots * sizeof(StatisticsSlot);
    job->ticket = ticket(number);
  }
  void address(StatisticsBatch* batch) const {
    batch->counters = scratch_;
    batch->partials = scratch_ + kCounterBytes;
  }

  // Results that are there, oldest first.
  int take(device::StatsResult* results, int capacity) {
    int taken = 0;
    for (; taken < capacity && !is_empty() && has_arrived(tail_); ++tail_) {
      finish(pending_[tail_ % kRingSlots], slots_[tail_ % kRingSlots], &results[taken++]);
    }
    return taken;
  }

 private:
  static constexpr size_t kCounterBytes = 256;
  static_assert(StatisticsBatch::kMostTensors * sizeof(uint32_t) <= kCounterBytes, "");
  static constexpr size_t kMostPartials = kMostBlocks + StatisticsBatch::kMostTensors;  // see BatchBuilder

  StatisticsRing() : pending_(kRingSlots) {}

  static uint32_t ticket(uint64_t number) { return static_cast<uint32_t>(number + 1); }
  bool has_arrived(uint64_t number) const {
    const StatisticsSlot& slot = slots_[number % kRingSlots];
    const uint32_t awaited = ticket(number);
    for (uint32_t i = kPartialWords; i-- > 0;) {
      if (__atomic_load_n(&slot.words[i], __ATOMIC_ACQUIRE) >> 32 != awaited) return false;
    }
    return true;
  }

  StatisticsSlot* slots_ = nullptr;
  CUdeviceptr device_slots_ = 0;
  CUdeviceptr scratch_ = 0;  // counters, then a Partial for each block
  std::vector<PendingStatistics> pending_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace aoti_debug::cuda
