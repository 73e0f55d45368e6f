// Decides after which launches of a stream the device writes a breadcrumb, and measures what waits to be measured.
#pragma once

#include <algorithm>
#include <cstdint>

namespace aoti_debug {

// What follows a launch.
struct AfterLaunch {
  bool crumb;       // a breadcrumb
  bool statistics;  // those that wait are asked for
};

// Launches in a row that take less than a limit each, by what the device completes.
class Burst {
 public:
  explicit Burst(uint64_t limit_ns) : limit_ns_(limit_ns) {}

  bool goes_on() const { return goes_on_; }

  // A window of launches has ended. `may_begin`: whether it may be the first one of a burst.
  void add_window(uint64_t elapsed_ns, uint64_t completed, bool may_begin) {
    const bool fast = elapsed_ns < completed * limit_ns_;
    slow_windows_ = fast || !goes_on_ ? 0 : slow_windows_ + 1;
    if (!goes_on_) {
      goes_on_ = fast && may_begin;
    } else if (slow_windows_ == 2) {  // one may be the time between two calls
      goes_on_ = false;
      slow_windows_ = 0;
    }
  }

 private:
  uint64_t limit_ns_;
  bool goes_on_ = false;
  uint32_t slow_windows_ = 0;
};

// How fast the launches of a call's streams follow each other. For one thread at a time.
class LaunchRate {
 public:
  static constexpr uint32_t kWindow = 16;  // launches
  static constexpr uint32_t kExactLaunches = 1024;
  static constexpr uint64_t kBurstNs = 20000;
  static constexpr uint64_t kMeasuredNs = 100000;

  // Launches take less than kBurstNs each. Never true of the first kExactLaunches, so that short runs are exact.
  bool is_burst() const { return burst_.goes_on(); }

  // They take less than kMeasuredNs each; never true of the first ones either.
  bool may_measure_later() const { return measured_.goes_on(); }

  // The launch `sequence` ends. `completed()` reads the last breadcrumb of the call's own stream, once a window: that
  // is a cache miss on the host.
  template <class Completed>
  void add(uint64_t now_ns, uint32_t sequence, const Completed& completed) {
    if (++launches_ < (is_burst() ? kWindow * 4 : kWindow)) return;
    const uint32_t reached = completed();
    seen_ += launches_;
    if (start_ns_ != 0) {
      const uint64_t passed = device_launches(sequence, reached);
      burst_.add_window(now_ns - start_ns_, passed, seen_ >= kExactLaunches);
      measured_.add_window(now_ns - start_ns_, passed, seen_ >= kExactLaunches);
    }
    start_ns_ = now_ns;
    start_sequence_ = sequence;
    start_completed_ = reached;
    launches_ = 0;
  }

 private:
  // How many of these launches the device has completed since the window began. Sequence numbers count those of other
  // calls, too. Not more than there were: where few launches are on the call's own stream, its breadcrumb stands still
  // and then makes up for many launches of other streams.
  uint64_t device_launches(uint32_t sequence, uint32_t reached) const {
    const uint64_t passed = static_cast<uint32_t>(reached - start_completed_);
    const uint64_t all = static_cast<uint32_t>(sequence - start_sequence_);
    return all == 0 ? 0 : std::min<uint64_t>(passed * launches_ / all, launches_);
  }

  Burst burst_{kBurstNs};
  Burst measured_{kMeasuredNs};
  uint32_t launches_ = 0;  // of the window
  uint64_t seen_ = 0;      // in earlier windows and this one
  uint64_t start_ns_ = 0;
  uint32_t start_sequence_ = 0;
  uint32_t start_completed_ = 0;
};

// A breadcrumb after every launch of a stream, as long as launches take long. In a burst it would be a large part of
// what they cost: then one after every kMaxLaunches. Statistics cost more: they may wait for those of later launches,
// up to kMaxLaunches. For one thread at a time.
class CrumbPace {
 public:
  static constexpr uint32_t kMaxLaunches = 16;

  // What follows the next launch. `fixed`: both after every so many launches; 0: as this class decides.
  AfterLaunch due(uint64_t fixed, const LaunchRate& rate) {
    const uint64_t distance = fixed != 0 ? fixed : rate.is_burst() ? kMaxLaunches : 1;
    const bool crumb = ++without_crumb_ >= distance;
    if (crumb) without_crumb_ = 0;
    const bool with_crumb = fixed != 0 || rate.is_burst();
    const bool waits = with_crumb ? !crumb : rate.may_measure_later() && without_statistics_ + 1 < kMaxLaunches;
    without_statistics_ = waits ? without_statistics_ + 1 : 0;
    return {crumb, !waits};
  }

  // Whether the last launch has no breadcrumb yet; it then gets one, at the end of its call.
  bool take_last() {
    const bool open = without_crumb_ != 0;
    without_crumb_ = 0;
    return open;
  }

 private:
  uint32_t without_crumb_ = 0;
  uint32_t without_statistics_ = 0;
};

}  // namespace aoti_debug
