#include "statistics_queue.h"

#include <algorithm>
#include <new>
#include <utility>

namespace aoti_debug {
namespace {

// The device half could not read the tensor; the text is in `values`.
bool is_skipped(const device::StatsResult& result) { return result.stats.reserved[0] == STATS_SKIPPED; }

bool is_same(const device::TensorView& a, const device::TensorView& b) {
  return a.data == b.data && a.element_bytes == b.element_bytes && a.ndim == b.ndim && a.device_type == b.device_type &&
         std::equal(a.sizes, a.sizes + a.ndim, b.sizes) && std::equal(a.strides, a.strides + a.ndim, b.strides);
}

void fail(TensorSample& sample, const char* why) {
  for (TensorSample* each = &sample; each != nullptr; each = each->alias) each->leave_unread(why);
}

}  // namespace

void TensorSample::own_dims() {
  dims.assign(meta.sizes, meta.sizes + meta.ndim);
  dims.insert(dims.end(), meta.strides, meta.strides + meta.ndim);
  meta.sizes = dims.data();
  meta.strides = dims.data() + meta.ndim;
}

void TensorSample::become(const TensorLocation& place) {
  static_cast<TensorLocation&>(*this) = place;
  state = State::kHeadline;
  watched = summarised = false;
  wanted = device::StatsWanted::kAll;
  alias = nullptr;
  meta = TensorMeta{};
  dims.clear();
  text.clear();
  values.clear();
}

void TensorSample::leave_unread(std::string_view why) noexcept {
  state = State::kUnread;
  try {
    text = why;
  } catch (const std::bad_alloc&) {
    text = "not read";  // so short that it takes no memory
  }
}

void TensorSample::take(const device::StatsResult& result) noexcept try {
  if (alias != nullptr) alias->take(result);
  const uint8_t* end = result.values + result.stats.value_bytes;
  if (is_skipped(result)) {
    state = State::kUnread;
    text = "not read: " + std::string(result.values, end);
    return;
  }
  state = State::kMeasured;
  if (wanted == device::StatsWanted::kHash) {
    stats = TensorStats{};
    stats.hash = result.stats.hash;
    return;
  }
  stats = result.stats;
  specials = {result.nan_index, result.pos_inf_index, result.neg_inf_index};
  values.assign(result.values, end);
} catch (const std::bad_alloc&) {
  leave_unread("not read: out of memory");
}

// Room for all that `receive` and `ask` need: they do not throw, so that no result is taken for another's.
StatsQueue::StatsQueue(void* stream) : stream_(stream) {
  spare_.reserve(kMaxSpare);
  unasked_.reserve(kMaxUnasked);
}

void StatsQueue::add(TensorSample&& sample) {
  const std::lock_guard<std::mutex> lock(mutex_);
  push(std::move(sample));
}

void StatsQueue::begin(TensorSample&& sample, const device::TensorView& view, HeldTensor&& held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (unasked_.size() == kMaxUnasked) ask();
  TensorSample* const same = alias_of(sample.wanted, view);
  wait(push(std::move(sample)), same, view, std::move(held));
}

void StatsQueue::begin_watched(const TensorLocation& place, const device::TensorView& view, HeldTensor&& held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (unasked_.size() == kMaxUnasked) ask();
  TensorSample* const same = alias_of(device::StatsWanted::kNumbers, view);
  TensorSample& sample = push_any();
  sample.become(place);
  sample.watched = true;
  sample.wanted = device::StatsWanted::kNumbers;
  wait(sample, same, view, std::move(held));
}

void StatsQueue::wait(TensorSample& sample, TensorSample* same, const device::TensorView& view,
                      HeldTensor&& held) noexcept {
  if (same != nullptr) {
    sample.state = TensorSample::State::kAsAnother;
    same->alias = &sample;
    return;
  }
  sample.state = TensorSample::State::kWaiting;
  const uint64_t end = view.data + spanned_bytes(view);
  if (!held) all_held_.store(false, std::memory_order_relaxed);
  if (view.data < lowest_.load(std::memory_order_relaxed)) lowest_.store(view.data, std::memory_order_relaxed);
  if (end > highest_.load(std::memory_order_relaxed)) highest_.store(end, std::memory_order_relaxed);
  unasked_.push_back({&sample, view, end, std::move(held)});
  n_unasked_.store(unasked_.size(), std::memory_order_relaxed);
  n_waiting_.store(n_waiting_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

TensorSample& StatsQueue::push_any() {
  if (results_ == nullptr) results_ = std::make_unique<device::StatsResult[]>(kCapacity);
  if (spare_.empty()) {
    samples_.push_back(std::make_unique<TensorSample>());
  } else {
    samples_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  }
  return *samples_.back();
}

TensorSample& StatsQueue::push(TensorSample&& sample) {
  TensorSample& added = push_any();
  added = std::move(sample);
  return added;
}

std::unique_ptr<TensorSample> StatsQueue::pop() {
  std::unique_ptr<TensorSample> first = std::move(samples_.front());
  samples_.pop_front();
  return first;
}

void StatsQueue::recycle(std::unique_ptr<TensorSample> sample) {
  if (spare_.size() < kMaxSpare) spare_.push_back(std::move(sample));
}

TensorSample* StatsQueue::alias_of(device::StatsWanted wanted, const device::TensorView& view) {
  const auto found = std::find_if(unasked_.begin(), unasked_.end(), [&](const Unasked& unasked) {
    return unasked.sample->wanted == wanted && is_same(unasked.view, view) &&
           (wanted == device::StatsWanted::kHash || unasked.view.dtype == view.dtype);
  });
  if (found == unasked_.end()) return nullptr;
  TensorSample* last = found->sample;
  while (last->alias != nullptr) last = last->alias;
  return last;
}

void StatsQueue::settle(bool later) {
  if (!has_waiting() || (later && all_held_.load(std::memory_order_relaxed))) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ask();
}

void StatsQueue::settle_within(uint64_t begin, uint64_t end) {
  if (end <= lowest_.load(std::memory_order_relaxed) || highest_.load(std::memory_order_relaxed) <= begin) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_within = [begin, end](const Unasked& unasked) {
    return begin < unasked.end && unasked.view.data < end;
  };
  if (std::any_of(unasked_.begin(), unasked_.end(), is_within)) ask();
}

void StatsQueue::ask() noexcept {
  for (auto first = unasked_.begin(); first != unasked_.end();) {
    const device::StatsWanted wanted = first->sample->wanted;
    const auto last =
        std::find_if(first, unasked_.end(), [wanted](const Unasked& u) { return u.sample->wanted != wanted; });
    ask(&*first, &*first + (last - first));
    first = last;
  }
  none_waits();
}

void StatsQueue::leave(const char* why) {
  if (!has_waiting()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Unasked& unasked : unasked_) {
    fail(*unasked.sample, why);
    --n_waiting_;
  }
  none_waits();
}

void StatsQueue::none_waits() {
  unasked_.clear();
  n_unasked_.store(0, std::memory_order_relaxed);
  all_held_.store(true, std::memory_order_relaxed);
  lowest_.store(UINT64_MAX, std::memory_order_relaxed);
  highest_.store(0, std::memory_order_relaxed);
}

void StatsQueue::ask(Unasked* begin, Unasked* end) noexcept {
  device::TensorView views[kMaxUnasked];
  for (bool waited = false;; waited = true) {
    std::transform(begin, end, views, [](const Unasked& unasked) { return unasked.view; });
    const int begun = device::begin_stats(stream_, views, static_cast<int>(end - begin), begin->sample->wanted);
    for (int i = 0; i < begun; ++i) begin++->sample->state = TensorSample::State::kOnDevice;
    if (begin == end) return;
    if (begun == 0 && waited) break;
    receive(true);  // there is no room before the oldest have arrived
  }
  for (; begin != end; ++begin) {
    fail(*begin->sample, "not read: the device has no room for its statistics");
    --n_waiting_;
  }
}

std::vector<std::optional<uint64_t>> StatsQueue::hash_now(const std::vector<device::TensorView>& views) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (results_ == nullptr) results_ = std::make_unique<device::StatsResult[]>(kCapacity);
  std::vector<std::optional<uint64_t>> hashes;
  size_t n_begun = 0;
  while (!failed_ && hashes.size() < views.size()) {
    const int left = static_cast<int>(views.size() - n_begun);
    n_begun +=
        static_cast<size_t>(device::begin_stats(stream_, views.data() + n_begun, left, device::StatsWanted::kHash));
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

bool StatsQueue::receive(bool wait) noexcept {
  int count = device::take_stats(stream_, results_.get(), kCapacity, wait);
  const bool failed = count < 0 || (wait && count == 0);  // who waits gets what there is: the rest does not come
  if (failed) count = device::take_stats(stream_, results_.get(), kCapacity, false);
  int used = 0;
  for (const std::unique_ptr<TensorSample>& each : samples_) {
    TensorSample& sample = *each;
    if (sample.state != TensorSample::State::kOnDevice) continue;
    if (used < count) {
      sample.take(results_[used++]);
    } else if (failed && count < kCapacity) {
      fail(sample, "not read: the device did not give its statistics");
      --n_waiting_;
    } else {
      break;
    }
  }
  n_waiting_ -= static_cast<size_t>(used);
  if (failed && count < kCapacity) device::forget_stats(stream_);  // they may still come, and nobody waits for them
  return used > 0 || failed;
}

}  // namespace aoti_debug
