// The results of one stream's statistics kernels: a ring in pinned host memory that the device writes.
#pragma once

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "driver.h"
#include "pending_statistics.h"
#include "statistics_batch.h"

namespace aoti_debug::cuda {

constexpr uint32_t kRingSlots = 1024;
constexpr size_t kCacheLine = 64;

class StatisticsRing {
 public:
  // nullptr where memory is short.
  static std::unique_ptr<StatisticsRing> create(CUstream stream) {
    std::unique_ptr<StatisticsRing> ring(new StatisticsRing);
    ring->slots_ = static_cast<StatisticsSlot*>(allocate_pinned(kRingSlots * sizeof(StatisticsSlot)));
    if (ring->slots_ == nullptr) return nullptr;
    memset(ring->slots_, 0, kRingSlots * sizeof(StatisticsSlot));
    ring->device_slots_ = device_address(ring->slots_);
    ring->scratch_ = allocate(StatisticsScratch::kBytes);
    const bool usable =
        ring->device_slots_ != 0 && ring->scratch_ != 0 &&
        cuMemsetD32Async(ring->scratch_, 0, StatisticsScratch::kBytes / sizeof(uint32_t), stream) == CUDA_SUCCESS;
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
  StatisticsScratch scratch() const { return {scratch_, 0, 0}; }

  // Nobody takes what was pushed so far. Each result says by its ticket which one it is, so those still to come are
  // told apart.
  void forget() { tail_ = head_; }

  // Results that are there, oldest first.
  int take(device::StatsResult* results, int capacity) {
    int taken = 0;
    for (; taken < capacity && !is_empty() && has_arrived(tail_); ++tail_) {
      prefetch(tail_ + 1);
      finish(pending_[tail_ % kRingSlots], slots_[tail_ % kRingSlots], &results[taken++]);
    }
    return taken;
  }

 private:
  StatisticsRing() : pending_(kRingSlots) {}

  // The device's words are in no cache of the host: those of the next result are on their way while one is taken.
  void prefetch(uint64_t number) const {
    const char* const words = reinterpret_cast<const char*>(slots_[number % kRingSlots].words);
    for (size_t at = 0; at < slot_bytes(false); at += kCacheLine) __builtin_prefetch(words + at);
  }

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
  CUdeviceptr scratch_ = 0;  // the mailboxes
  std::vector<PendingStatistics> pending_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace aoti_debug::cuda
