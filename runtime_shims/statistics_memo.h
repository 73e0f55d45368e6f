// Statistics of tensors in host memory that are met again and again: as one launch's output, as the next one's input.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "device.h"

namespace aoti_debug {

class StatisticsMemo {
 public:
  // As host_statistics. What lay at this address when it was measured last is not measured again if its content hash,
  // which takes a fraction of the time, is what it was then.
  void measure(const device::TensorView& view, TensorStats* stats);

  // As host_statistics, for elements that have just been written.
  void measure_written(const device::TensorView& view, TensorStats* stats);

 private:
  static constexpr size_t kMostKnown = 4096;
  static constexpr int64_t kFewestElements = 4096;

  struct Known {
    int32_t dtype;
    TensorStats stats;
  };

  std::unordered_map<uint64_t, Known> known_;  // by address
};

}  // namespace aoti_debug
