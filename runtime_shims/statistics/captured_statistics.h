// The statistics that CUDA graphs keep of the calls that they capture, until somebody records them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "statistics_queue.h"

namespace aoti_debug {

// A tensor of a captured launch.
struct CapturedSight {
  Sight sight;
  const void* kept = nullptr;  // for device::read_kept; nullptr: `sight` says all
};

struct CapturedCallStatistics {
  uint16_t crumb_slot = 0;
  std::vector<CapturedSight> sights;  // in the order of the launches
};

class CapturedStatistics {
 public:
  static constexpr size_t kMost = 65536;  // tensors of all calls

  // How many of `wanted` tensors there is room for; they are taken.
  size_t take_room(size_t wanted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t taken = wanted < kMost - taken_ ? wanted : kMost - taken_;
    taken_ += taken;
    return taken;
  }

  void add(const LaunchId& id, uint16_t crumb_slot, std::vector<CapturedSight> sights) {
    const std::lock_guard<std::mutex> lock(mutex_);
    CapturedCallStatistics& call = calls_[{id.kind, id.call}];
    call.crumb_slot = crumb_slot;
    for (CapturedSight& sight : sights) call.sights.push_back(std::move(sight));
  }

  // Calls `take(call, statistics)` with the number and the statistics of every captured call.
  template <class Take>
  void take(const Take& take) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, call] : calls_) take(key.second, call);
    calls_.clear();
  }

 private:
  std::mutex mutex_;
  size_t taken_ = 0;
  std::map<std::pair<uint8_t, uint32_t>, CapturedCallStatistics> calls_;
};

}  // namespace aoti_debug
