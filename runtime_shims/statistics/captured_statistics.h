// The statistics that CUDA graphs keep of the calls that they capture, until somebody records them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "statistics_queue.h"

namespace aoti_debug {

// A tensor of a captured launch.
struct CapturedSample {
  TensorSample sample;
  const void* kept = nullptr;  // for device::read_last and read_replay; nullptr: `sample` says all
};

struct CapturedCallStatistics {
  uint16_t crumb_slot = 0;
  std::vector<CapturedSample> samples;  // in the order of the launches
  uint32_t kept_replays = 1;            // how many of the last ones are kept of what is summarised
  uint32_t next_replay = 1;             // the first one whose summaries are not complete
  size_t next_sample = 0;               // of it
};

class CapturedStatistics {
 public:
  static constexpr size_t kMaxTensors = 65536;  // tensors of all calls

  // What the last replays have left of a summarised tensor, one result each.
  static constexpr size_t kMaxResults = size_t{1} << 18;        // of all calls: 64 MiB
  static constexpr size_t kMaxResultsOfCall = size_t{1} << 14;  // what replays leave while nobody looks
  static constexpr uint32_t kMinReplays = 4;

  // How many of `wanted` tensors there is room for; they are taken.
  size_t take_room(size_t wanted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t taken = wanted < kMaxTensors - taken_ ? wanted : kMaxTensors - taken_;
    taken_ += taken;
    return taken;
  }

  // Of how many replays, a power of two, a call with about so many summarised tensors keeps the results: fewer of later
  // calls.
  uint32_t replays_to_keep(size_t tensors) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t results = std::min(kMaxResultsOfCall, (kMaxResults - results_) / 4);
    uint32_t replays = kMinReplays;
    while (std::max<size_t>(tensors, 1) * 2 * replays <= results) replays *= 2;
    return replays;
  }

  // Whether there is room for the results of so many replays of one more tensor; it is taken.
  bool take_results(uint32_t replays) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (replays > kMaxResults - results_) return false;
    results_ += replays;
    return true;
  }

  void add(const LaunchId& id, uint16_t crumb_slot, uint32_t kept_replays, std::vector<CapturedSample> samples) {
    const std::lock_guard<std::mutex> lock(mutex_);
    CapturedCallStatistics& call = calls_[{id.kind, id.call}];
    call.crumb_slot = crumb_slot;
    call.kept_replays = kept_replays;
    for (CapturedSample& sample : samples) call.samples.push_back(std::move(sample));
  }

  // Calls `visitor(statistics)` with those of every captured call.
  template <class Visitor>
  void visit(const Visitor& visitor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, call] : calls_) visitor(call);
  }

  // Calls `take(call, statistics)` with the number and the statistics of every captured call.
  template <class Take>
  void take(const Take& take) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, call] : calls_) take(key.second, call);
    calls_.clear();
  }

 private:
  mutable std::mutex mutex_;
  size_t taken_ = 0;
  size_t results_ = 0;
  std::map<std::pair<uint8_t, uint32_t>, CapturedCallStatistics> calls_;
};

}  // namespace aoti_debug
