// What a CUDA graph holds of a call that it captures, beside the model's own nodes: the count of replays, what
// tensors' statistics were in the last one, and the conditions of watchpoints. It stays until the process ends, since
// the graph may be replayed at any time.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>

#include "device/device.h"
#include "driver.h"
#include "graph_jobs.h"
#include "statistics_batch.h"
#include "statistics_request.h"

namespace aoti_debug::cuda {

// Zeroed memory that is handed out piece by piece and never given back.
class Pieces {
 public:
  explicit Pieces(CUdeviceptr (*allocate_zeroed)(size_t bytes)) : allocate_zeroed_(allocate_zeroed) {}

  // The address of `bytes` bytes; 0: there are none left.
  CUdeviceptr take(size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > left_) {
      next_ = allocate_zeroed_(std::max(bytes, kAtOnce));
      left_ = next_ == 0 ? 0 : std::max(bytes, kAtOnce);
    }
    if (bytes > left_) return 0;
    left_ -= bytes;
    next_ += bytes;
    return next_ - bytes;
  }

 private:
  static constexpr size_t kAlignment = 256;
  static constexpr size_t kAtOnce = size_t{1} << 16;

  CUdeviceptr (*allocate_zeroed_)(size_t bytes);
  CUdeviceptr next_ = 0;
  size_t left_ = 0;
};

// The statistics of a tensor, of the last replays that have measured it.
struct KeptStatistics {
  PendingStatistics pending;
  const uint8_t* slots = nullptr;  // in host memory; nullptr: there is nothing to measure
  uint32_t replays = 1;            // how many of the last ones have a slot: a power of two

  bool is_measured() const { return slots != nullptr && pending.skipped.empty(); }

  const StatisticsSlot& slot_of(uint32_t replay) const {
    const size_t bytes = slot_bytes(pending.value_bytes != 0);
    return *reinterpret_cast<const StatisticsSlot*>(slots + (replay & (replays - 1)) * bytes);
  }
};

// Of the last replay that has stored them whole. May be called while a replay stores them. `replay` is its number, or 0
// where the result is that of every replay.
device::Kept read_last(const KeptStatistics& kept, device::StatsResult* result, uint32_t* replay);

// Of one replay; kTorn where a later one has stored its own over them.
device::Kept read_replay(const KeptStatistics& kept, uint32_t replay, device::StatsResult* result);

class CapturedCall {
 public:
  // Adds what begins a replay, except for `job.replays`. nullptr where that fails.
  static std::unique_ptr<CapturedCall> begin(CUstream stream, ReplayJob job);

  // Adds the statistics of a tensor, which the stream's next work waits for. False where there are none.
  bool add_statistics(CUstream stream, const device::TensorView& view);

  // Adds the statistics of tensors, which the stream's next work waits for. Each replay leaves its own in `kept`, which
  // has those of the last `replays`, a power of two.
  void keep_statistics(CUstream stream, const device::TensorView* views, int count, device::StatsWanted wanted,
                       uint32_t replays, const void** kept);

  // Adds a condition on the statistics that were added last; nullptr where that fails. What is captured later does not
  // wait for it.
  const CapturedWatch* add_watch(CUstream stream, const WatchNode* nodes, uint32_t count);

 private:
  CapturedCall();

  // The place of a request's results, of so many replays; without one, the request is skipped.
  const KeptStatistics* keep(StatisticsRequest* request, uint32_t replays);

  bool take_scratch();
  // For the statistics of which so many replays have a slot.
  StatisticsScratch scratch(uint32_t replays) const;

  Pieces device_;
  Pieces host_;
  CUdeviceptr replays_ = 0;  // of a uint32_t in device memory
  CUdeviceptr scratch_ = 0;  // of the statistics; 0: none were wanted yet
  WatchJob watched_{};       // of the tensor that was added last
  std::deque<KeptStatistics> kept_;
};

}  // namespace aoti_debug::cuda
