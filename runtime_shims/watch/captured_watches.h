// The conditions of watchpoints that CUDA graphs hold, and what replays have found since somebody looked.
#pragma once

#include <deque>
#include <mutex>

#include "aoti_debug.h"
#include "formats/watch_nodes.h"
#include "journal/launch_id.h"

namespace aoti_debug {

// A condition on one tensor of a captured launch.
struct CapturedCondition {
  LaunchId id{};
  const AotiDebugSite* site = nullptr;
  uint16_t slot = 0;
  Phase phase = PHASE_BEFORE;
  uint32_t thread = 0;        // that captured the launch
  uint32_t shown_thread = 0;  // 0 where there is one only
  uint32_t watch = 0;
  const CapturedWatch* found = nullptr;  // a device writes it
  uint64_t evaluated = 0;                // of what was found before
  uint64_t hits = 0;
};

class CapturedWatches {
 public:
  void add(const CapturedCondition& condition) {
    const std::lock_guard<std::mutex> lock(mutex_);
    conditions_.push_back(condition);
  }

  // Calls `take(condition, evaluated, hits)` for each that was looked at since the last time, with how often it was and
  // how often it held since then.
  template <class Take>
  void take_news(const Take& take) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (CapturedCondition& condition : conditions_) {
      const uint64_t hits = __atomic_load_n(&condition.found->hits, __ATOMIC_ACQUIRE);
      const uint64_t evaluated = __atomic_load_n(&condition.found->evaluated, __ATOMIC_RELAXED);
      if (evaluated == condition.evaluated) continue;
      take(condition, evaluated - condition.evaluated, hits - condition.hits);
      condition.evaluated = evaluated;
      condition.hits = hits;
    }
  }

 private:
  std::mutex mutex_;
  std::deque<CapturedCondition> conditions_;
};

}  // namespace aoti_debug
