// What a run says once.
#pragma once

#include <atomic>
#include <cstdint>

namespace aoti_debug {

enum class Notice : uint8_t {
  kCapture,
  kCaptureWithoutCrumbs,
  kCaptureWithoutWatches,
  kTooManyCaptured,  // tensors
  kTooManySummarised,
  kIdleWatchActions,
  kGuardsNotCompared,
  kWatchUnread,
};

class Notices {
 public:
  // Whether it was not asked for before.
  bool is_first(Notice notice) {
    const uint32_t bit = uint32_t{1} << static_cast<uint8_t>(notice);
    return (given_.fetch_or(bit) & bit) == 0;
  }

 private:
  std::atomic<uint32_t> given_{0};
};

}  // namespace aoti_debug
