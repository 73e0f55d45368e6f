#include "stats_queue.h"

#include <utility>

namespace aoti_debug {
namespace {

// The device half could not read the tensor; the text is in `values`.
bool is_skipped(const device::StatsResult& result) { return result.stats.reserved[0] == STATS_SKIPPED; }

void fill(Sight& sight, const device::StatsResult& result) {
  const uint8_t* end = result.values + result.stats.value_bytes;
  if (is_skipped(result)) {
    sight.state = Sight::State::kUnread;
    sight.text = "not read: " + std::string(result.values, end);
    return;
  }
  sight.state = Sight::State::kMeasured;
  if (sight.hash_only) {
    sight.stats = TensorStats{};
    sight.stats.hash = result.stats.hash;
    return;
  }
  sight.stats = result.stats;
  sight.specials = {result.nan_index, result.pos_inf_index, result.neg_inf_index};
  sight.values.assign(result.values, end);
}

}  // namespace

void Sight::own_dims() {
  dims.assign(meta.sizes, meta.sizes + meta.ndim);
  dims.insert(dims.end(), meta.strides, meta.strides + meta.ndim);
  meta.sizes = dims.data();
  meta.strides = dims.data() + meta.ndim;
}

void StatsQueue::add(Sight sight) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sights_.push_back(std::move(sight));
}

bool StatsQueue::begin(Sight& sight, const device::TensorView& view) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!device::begin_stats(stream_, view, !sight.hash_only)) return false;
  sight.state = Sight::State::kOnDevice;
  sights_.push_back(std::move(sight));
  ++n_waiting_;
  return true;
}

std::vector<std::optional<uint64_t>> StatsQueue::hash_now(const std::vector<device::TensorView>& views) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (results_ == nullptr) results_.reset(new device::StatsResult[kCapacity]);
  std::vector<std::optional<uint64_t>> hashes;
  size_t n_begun = 0;
  while (!failed_ && hashes.size() < views.size()) {
    while (n_begun < views.size() && device::begin_stats(stream_, views[n_begun], false)) ++n_begun;
    const int count = device::take_stats(stream_, results_.get(), kCapacity, true);
    failed_ = count <= 0;
    for (int i = 0; i < count; ++i) {
      hashes.emplace_back();
      if (!is_skipped(results_[i])) hashes.back() = results_[i].stats.hash;
    }
  }
  hashes.resize(views.size());
  return hashes;
}

bool StatsQueue::receive(bool wait) {
  if (results_ == nullptr) results_.reset(new device::StatsResult[kCapacity]);
  int count = device::take_stats(stream_, results_.get(), kCapacity, wait);
  const bool failed = count < 0;
  if (failed) count = device::take_stats(stream_, results_.get(), kCapacity, false);
  int used = 0;
  for (Sight& sight : sights_) {
    if (sight.state != Sight::State::kOnDevice) continue;
    if (used < count) {
      fill(sight, results_[used++]);
    } else if (failed && count < kCapacity) {
      sight.state = Sight::State::kUnread;
      sight.text = "not read: the device reports an error";
      --n_waiting_;
    } else {
      break;
    }
  }
  n_waiting_ -= static_cast<size_t>(used);
  return used > 0 || failed;
}

}  // namespace aoti_debug
