// The results of one stream's statistics kernels: a ring in pinned host memory that the device writes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../device.h"
#include "driver.h"
#include "kernel_arguments.h"

namespace aoti_debug::cuda {

constexpr uint32_t kRingSlots = 1024;
constexpr uint32_t kMostBlocks = 1024;

// What the host knows about a result that is on its way.
struct PendingStatistics {
  uint64_t numel = 0;
  uint64_t bytes = 0;
  uint32_t integer = 0;  // TensorStats::integer
  uint32_t value_bytes = 0;
  bool counted = false;
  std::string skipped;  // why there are no statistics; then nothing was launched
};

inline double quiet_nan() { return bits_as<double>(uint64_t{0x7ff8000000000000u}); }

inline device::StatsResult finish(const PendingStatistics& pending, const StatisticsSlot& slot) {
  device::StatsResult result{};
  TensorStats& stats = result.stats;
  stats.numel = pending.numel;
  if (!pending.skipped.empty()) {
    stats.reserved[0] = STATS_SKIPPED;
    stats.value_bytes = static_cast<uint32_t>(std::min(pending.skipped.size(), sizeof(result.values)));
    memcpy(result.values, pending.skipped.data(), stats.value_bytes);
    return result;
  }
  const Partial& total = slot.result;
  stats.hash = hash_finish(total.hash, pending.bytes);
  stats.value_bytes = pending.value_bytes;
  memcpy(result.values, slot.values, pending.value_bytes);
  stats.integer = static_cast<uint8_t>(pending.integer);
  stats.mean = stats.std = quiet_nan();
  if (!pending.counted) return result;
  stats.n_nan = total.nan;
  stats.n_pos_inf = total.pos_inf;
  stats.n_neg_inf = total.neg_inf;
  stats.n_zero = total.zero;
  result.nan_index = total.nan_index;
  result.pos_inf_index = total.pos_inf_index;
  result.neg_inf_index = total.neg_inf_index;
  if (total.finite == 0) {
    if (pending.integer == 0) stats.min_bits = stats.max_bits = bits_as<uint64_t>(quiet_nan());
    return result;
  }
  stats.min_bits = total.min;
  stats.max_bits = total.max;
  stats.min_index = total.min_index;
  stats.max_index = total.max_index;
  const int scale = static_cast<int>(total.exponent) - Moments::unit_exponent;
  stats.mean = std::ldexp(total.mean, scale);
  stats.std = std::ldexp(std::sqrt(total.squares / static_cast<double>(total.finite)), scale);
  return result;
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
    ring->scratch_ = allocate(kCounterBytes + kMostBlocks * sizeof(Partial));
    const bool usable = ring->device_slots_ != 0 && ring->scratch_ != 0 &&
                        cuMemsetD32Async(ring->scratch_, 0, kCounterBytes / sizeof(uint32_t), stream) == CUDA_SUCCESS;
    if (usable) return ring;
    if (ring->scratch_ != 0) cuMemFree(ring->scratch_);
    cuMemFreeHost(ring->slots_);
    return nullptr;
  }

  bool is_full() const { return head_ - tail_ == kRingSlots; }
  bool is_empty() const { return head_ == tail_; }
  bool all_arrived() const { return is_empty() || has_arrived(head_ - 1); }

  // The addresses that the next job needs.
  void prepare(StatisticsJob* job) const {
    job->slot = device_slots_ + head_ % kRingSlots * sizeof(StatisticsSlot);
    job->counter = scratch_;
    job->partials = scratch_ + kCounterBytes;
    job->ticket = ticket(head_);
  }

  // The prepared job was launched.
  void push(const PendingStatistics& pending) { pending_[head_++ % kRingSlots] = pending; }

  // A result that needs no device: of no elements, or skipped.
  void push_arrived(const PendingStatistics& pending) {
    StatisticsSlot& slot = slots_[head_ % kRingSlots];
    slot.result = Partial{};
    slot.ticket = ticket(head_);
    push(pending);
  }

  // Results that are there, oldest first.
  int take(device::StatsResult* results, int capacity) {
    int taken = 0;
    for (; taken < capacity && !is_empty() && has_arrived(tail_); ++tail_) {
      results[taken++] = finish(pending_[tail_ % kRingSlots], slots_[tail_ % kRingSlots]);
    }
    return taken;
  }

 private:
  static constexpr size_t kCounterBytes = 256;

  StatisticsRing() : pending_(kRingSlots) {}

  static uint32_t ticket(uint64_t number) { return static_cast<uint32_t>(number + 1); }
  bool has_arrived(uint64_t number) const {
    return __atomic_load_n(&slots_[number % kRingSlots].ticket, __ATOMIC_ACQUIRE) == ticket(number);
  }

  StatisticsSlot* slots_ = nullptr;
  CUdeviceptr device_slots_ = 0;
  CUdeviceptr scratch_ = 0;  // the counter, then a Partial for each block
  std::vector<PendingStatistics> pending_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace aoti_debug::cuda
