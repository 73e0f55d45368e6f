// Statistics and hashes of tensors in host memory that are met again and again: as one launch's output, as the next
// one's input.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "device/device.h"

namespace aoti_debug {

class StatisticsMemo {
 public:
  // As host_statistics. A tensor that was measured before is not measured again if the hash of its memory, which takes
  // a fraction of the time, is what it was then.
  void measure(const device::TensorView& view, TensorStats* stats);

  // As host_statistics, for elements that have just been written.
  void measure_written(const device::TensorView& view, TensorStats* stats);

  // As host_hash. Elements that lie in another order, as those of a transposed weight, are hashed in the order of their
  // memory, which takes a fraction of the time, and again only if that hash has changed.
  uint64_t hash(const device::TensorView& view);

 private:
  static constexpr size_t kMaxKnown = 4096;
  static constexpr int64_t kMinElements = 4096;

  struct Known {
    uint64_t data;
    int32_t dtype;
    std::vector<int64_t> dims;  // sizes, then strides
    uint64_t memory_hash;       // of the elements in the order in which they lie in memory
    TensorStats stats;
  };

  std::unordered_map<uint64_t, Known> known_;   // by address and strides
  std::unordered_map<uint64_t, Known> hashed_;  // of their `stats`, only the hash is known
};

}  // namespace aoti_debug
