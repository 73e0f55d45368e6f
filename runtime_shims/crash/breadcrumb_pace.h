// Decides after which launches of a stream the device writes a breadcrumb.
#pragma once

#include <cstdint>

namespace aoti_debug {

// A breadcrumb after every launch, as long as launches take long. While they come in a burst (under kBurstNs each, by
// what the device completes) it would be a large part of what they cost: then one after every kMostLaunches.
// The first kExactLaunches of a stream have one each in any case, so that short runs are exact. For one thread at a
// time.
class CrumbPace {
 public:
  static constexpr uint32_t kMostLaunches = 16;
  static constexpr uint32_t kExactLaunches = 1024;
  static constexpr uint64_t kBurstNs = 20000;

  // Whether a breadcrumb follows the launch `sequence`. `fixed`: after every so many launches; 0: as this class
  // decides. `completed()` reads the stream's last breadcrumb.
  template <class Completed>
  bool is_due(uint64_t fixed, uint64_t now_ns, uint32_t sequence, const Completed& completed) {
    if (fixed == 0) measure(now_ns, sequence, completed);
    const uint64_t distance = fixed != 0 ? fixed : burst_ ? kMostLaunches : 1;
    if (++without_crumb_ < distance) return false;
    without_crumb_ = 0;
    return true;
  }

  // Whether the last launch has no breadcrumb yet; it then gets one, at the end of its call.
  bool take_last() {
    const bool open = without_crumb_ != 0;
    without_crumb_ = 0;
    return open;
  }

 private:
  // A breadcrumb is read back once a window: that is a cache miss on the host.
  template <class Completed>
  void measure(uint64_t now_ns, uint32_t sequence, const Completed& completed) {
    if (++launches_ < (burst_ ? kMostLaunches * 4 : kMostLaunches)) return;
    const uint32_t reached = completed();
    seen_ += launches_;
    if (start_ns_ != 0) decide(now_ns - start_ns_, device_launches(sequence, reached));
    start_ns_ = now_ns;
    start_sequence_ = sequence;
    start_completed_ = reached;
    launches_ = 0;
  }

  // How many launches of this stream the device has completed since the window began. Sequence numbers count the
  // launches of all streams.
  uint64_t device_launches(uint32_t sequence, uint32_t reached) const {
    const uint64_t passed = static_cast<uint32_t>(reached - start_completed_);
    const uint64_t all = static_cast<uint32_t>(sequence - start_sequence_);
    return all == 0 ? 0 : passed * launches_ / all;
  }

  void decide(uint64_t elapsed_ns, uint64_t completed) {
    const bool fast = elapsed_ns < completed * kBurstNs;
    if (!burst_) {
      burst_ = fast && seen_ >= kExactLaunches;
      slow_windows_ = 0;
      return;
    }
    slow_windows_ = fast ? 0 : slow_windows_ + 1;
    if (slow_windows_ < 2) return;  // one may be the time between two calls
    burst_ = false;
    slow_windows_ = 0;
  }

  bool burst_ = false;
  uint32_t without_crumb_ = 0;
  uint32_t launches_ = 0;  // of the window
  uint64_t seen_ = 0;      // in earlier windows and this one
  uint32_t slow_windows_ = 0;
  uint64_t start_ns_ = 0;
  uint32_t start_sequence_ = 0;
  uint32_t start_completed_ = 0;
};

}  // namespace aoti_debug
