#include "statistics_memo.h"

#include <algorithm>

#include "formats/content_hash.h"
#include "statistics.h"
#include "tensors/hashing.h"
#include "tensors/strided.h"

namespace aoti_debug {
namespace {

// Whether the elements fill their memory without gaps, in whatever order of the dimensions.
bool is_dense(const device::TensorView& view) {
  int64_t next = 1;  // the stride of the dimension that is expected
  for (int64_t left = view.numel; left > 1;) {
    const int64_t* const strides = view.strides;
    int32_t found = -1;
    for (int32_t d = 0; d < static_cast<int32_t>(view.ndim); ++d) {
      if (strides[d] == next && view.sizes[d] > 1) found = d;
    }
    if (found < 0) return false;
    next *= view.sizes[found];
    left /= view.sizes[found];
  }
  return true;
}

// The hash of the memory of a dense tensor.
uint64_t memory_hash(device::TensorView view) {
  const int64_t stride = 1;
  view.ndim = 1;
  view.sizes = &view.numel;
  view.strides = &stride;
  return host_hash(view);
}

uint64_t key_of(const device::TensorView& view) {
  uint64_t key = hash_mix(view.data);
  for (int32_t d = 0; d < static_cast<int32_t>(view.ndim); ++d) {
    key = hash_mix(key + static_cast<uint64_t>(view.strides[d]));
  }
  return key;
}

std::vector<int64_t> dims_of(const device::TensorView& view) {
  std::vector<int64_t> dims(view.sizes, view.sizes + view.ndim);
  dims.insert(dims.end(), view.strides, view.strides + view.ndim);
  return dims;
}

}  // namespace

void StatisticsMemo::measure(const device::TensorView& view, TensorStats* stats) {
  const auto found = known_.find(key_of(view));
  if (found != known_.end()) {
    const Known& known = found->second;
    if (known.data == view.data && known.dtype == view.dtype && known.dims == dims_of(view) &&
        known.memory_hash == memory_hash(view)) {
      *stats = known.stats;
      return;
    }
  }
  measure_written(view, stats);
}

void StatisticsMemo::measure_written(const device::TensorView& view, TensorStats* stats) {
  host_statistics(view, stats);
  if (view.numel < kMinElements || !is_dense(view)) return;
  if (known_.size() == kMaxKnown) known_.clear();
  const uint64_t in_memory = StridedReader(view).is_contiguous() ? stats->hash : memory_hash(view);
  known_[key_of(view)] = Known{view.data, view.dtype, dims_of(view), in_memory, *stats};
}

uint64_t StatisticsMemo::hash(const device::TensorView& view) {
  if (view.numel < kMinElements || StridedReader(view).is_contiguous() || !is_dense(view)) return host_hash(view);
  const uint64_t in_memory = memory_hash(view), key = key_of(view);
  const auto found = hashed_.find(key);
  if (found != hashed_.end()) {
    const Known& known = found->second;
    const bool is_same = known.data == view.data && known.dtype == view.dtype && known.dims == dims_of(view);
    if (is_same && known.memory_hash == in_memory) return known.stats.hash;
  }
  if (hashed_.size() == kMaxKnown) hashed_.clear();
  TensorStats stats{};
  stats.hash = host_hash(view);
  hashed_[key] = Known{view.data, view.dtype, dims_of(view), in_memory, stats};
  return stats.hash;
}

}  // namespace aoti_debug
