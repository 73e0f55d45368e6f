// Watchpoints: conditions on the tensors of launches, looked at while the model runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aoti_debug.h"
#include "watch_condition.h"

namespace aoti_debug {

// "buf7: absmax > 1e4": a pattern of argument or kernel names, and a condition.
struct Watchpoint {
  std::string text;
  std::string pattern;
  Condition condition;

  bool matches(const char* kernel, const char* argument) const;
};

// Where the text is none, `error` says why and `at` is the place: characters from its beginning.
std::optional<Watchpoint> parse_watchpoint(std::string_view text, std::string* error, size_t* at);

// "save,stop" as WatchActions; nothing where a word is none of them.
std::optional<uint32_t> parse_watch_actions(std::string_view words);

// A slot of a site that watchpoints look at.
struct WatchedSlot {
  uint16_t slot;
  bool before;
  bool after;
  std::vector<uint32_t> watches;
};

class Watchpoints {
 public:
  static constexpr uint64_t kMaxRecorded = 256;  // hits in all: one block of the journal; each watchpoint has a share
  static constexpr uint64_t kMaxSaved = 16;      // launches

  // `before` and `after` choose the phases; without either, what a launch writes is looked at after it, and what it
  // reads before it, unless some launch of the package writes it.
  Watchpoints(std::vector<Watchpoint> watchpoints, uint32_t actions, const AotiDebugPackage& package, bool before,
              bool after);

  const std::vector<Watchpoint>& all() const { return watchpoints_; }
  const std::vector<WatchedSlot>& of(const AotiDebugSite& site) const { return sites_[site.id]; }
  bool does(WatchAction action) const { return (actions_ & action) != 0; }

  // Counts evaluations.
  void evaluate(uint32_t watch, uint64_t times) {
    counts_[watch].evaluated.fetch_add(times, std::memory_order_relaxed);
  }

  // Counts a tensor that was not read; returns its number, from 1.
  uint32_t miss(uint32_t watch) { return counts_[watch].unread.fetch_add(1) + 1; }

  // Counts hits; returns the number of the first of them, from 1.
  uint64_t hit(uint32_t watch, uint64_t times) { return counts_[watch].hits.fetch_add(times) + 1; }
  // Whether the hit with this number of a watchpoint is recorded.
  bool is_recorded(uint64_t number) const {
    return number <= std::max<uint64_t>(kMaxRecorded / watchpoints_.size(), 1);
  }
  // Whether one more first hit of a condition in a CUDA graph is recorded.
  bool may_record_captured() { return captured_.fetch_add(1) < kMaxRecorded; }
  bool may_save() { return saved_.fetch_add(1) < kMaxSaved; }
  bool may_write_stack() { return !stack_written_.exchange(true); }
  WatchCount count(uint32_t watch) const;

 private:
  struct Count {
    std::atomic<uint64_t> hits{0};
    std::atomic<uint64_t> evaluated{0};
    std::atomic<uint32_t> unread{0};
  };

  std::vector<Watchpoint> watchpoints_;
  uint32_t actions_;
  std::vector<std::vector<WatchedSlot>> sites_;
  std::unique_ptr<Count[]> counts_;
  std::atomic<uint64_t> captured_{0};
  std::atomic<uint64_t> saved_{0};
  std::atomic<bool> stack_written_{false};
};

}  // namespace aoti_debug
