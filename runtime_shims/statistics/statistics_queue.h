// What a device measures on one stream, in the order in which it will be shown.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/device.h"
#include "journal/launch_id.h"
#include "tensors/held_tensor.h"
#include "tensors/tensor_meta.h"

namespace aoti_debug {

// Row-major indices of the first NaN, infinity and negative infinity; they mean nothing where there is none.
struct FirstSpecials {
  uint64_t nan = 0, pos_inf = 0, neg_inf = 0;
};

// An argument of a launch, before or after it.
struct TensorLocation {
  Phase phase = PHASE_BEFORE;
  uint16_t slot = 0;
  LaunchId id{};
  uint32_t thread = 0;  // 0 where there is one only
  const AotiDebugSite* site = nullptr;
};

// One tensor of a launch, or (site only) the launch itself.
struct TensorSample : TensorLocation {
  enum class State : uint8_t {
    kHeadline,       // the launch itself; `text` is its line
    kWaiting,        // statistics that the device is yet to be asked for
    kOnDevice,       // statistics that the device has yet to give
    kAsAnother,      // they will be those of another one, whose `alias` this is
    kMeasured,       // `stats` and `values` hold them
    kUninitialised,  // before the first launch that writes it
    kUnread,         // `text` says why
  };

  State state = State::kHeadline;
  bool watched = false;                                    // measured for watchpoints alone: not shown
  bool summarised = false;                                 // goes to the summaries
  device::StatsWanted wanted = device::StatsWanted::kAll;  // what `stats` has
  TensorMeta meta{};
  std::vector<int64_t> dims;  // keeps the sizes and strides of `meta` where the tensor may be gone by then
  std::string text;
  TensorStats stats{};
  std::vector<uint8_t> values;
  FirstSpecials specials;         // where a device has measured
  TensorSample* alias = nullptr;  // a later one of the same memory, which gets the same

  TensorSample() = default;
  TensorSample(TensorSample&&) = default;
  TensorSample& operator=(TensorSample&&) = default;

  void own_dims();

  // Makes it that of another argument. What only a state gives a meaning stays as it was.
  void become(const TensorLocation& place);

  // Takes what a device has measured of it. Without memory for it, it is unread.
  void take(const device::StatsResult& result) noexcept;

  void leave_unread(std::string_view why) noexcept;
};

class StatsQueue {
 public:
  explicit StatsQueue(void* stream);

  // Adds what is there already.
  void add(TensorSample&& sample);

  // Asks for the statistics of a tensor, which wait until `settle`. `held` keeps its memory where they may wait longer
  // than that. The sizes and strides of the view must live as long.
  void begin(TensorSample&& sample, const device::TensorView& view, HeldTensor&& held);

  // The same for what a watchpoint looks at: nothing of it is ever shown but its place.
  void begin_watched(const TensorLocation& place, const device::TensorView& view, HeldTensor&& held);

  // Enqueues on the stream what waits. With `later`, what is held goes on waiting where nothing else waits.
  void settle(bool later);

  // What waits is not asked for any more: its tensors may have changed.
  void leave(const char* why);

  bool has_waiting() const { return n_unasked_.load(std::memory_order_relaxed) != 0; }

  // Enqueues on the stream what waits, if a tensor within these addresses does.
  void settle_within(uint64_t begin, uint64_t end);

  // The content hashes of several tensors, after what is enqueued on the stream; waits for them. Empty where the device
  // does not give one. Not for a queue that holds anything.
  std::vector<std::optional<uint64_t>> hash_now(const std::vector<device::TensorView>& views);

  // Calls `show(sample)` for everything that is ready, oldest first; with `wait`, for all there is.
  template <class Show>
  void take(bool wait, const Show& show) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (wait) ask();
    for (;;) {
      while (!samples_.empty() && !is_open(*samples_.front())) {
        std::unique_ptr<TensorSample> sample = pop();
        show(*sample);
        recycle(std::move(sample));
      }
      if (samples_.empty() || !receive(wait)) return;
    }
  }

  bool is_long() const { return n_waiting_ >= kMaxWaiting; }

 private:
  static constexpr size_t kMaxWaiting = 4096;
  static constexpr int kCapacity = 64;
  static constexpr size_t kMaxUnasked = 16;  // what one kernel measures
  static constexpr size_t kMaxSpare = 64;

  struct Unasked {
    TensorSample* sample;
    device::TensorView view;
    uint64_t end;  // of its memory, which begins at view.data
    HeldTensor held;
  };

  static bool is_open(const TensorSample& sample) {
    return sample.state == TensorSample::State::kWaiting || sample.state == TensorSample::State::kOnDevice ||
           sample.state == TensorSample::State::kAsAnother;
  }

  // Forgets what waits. The mutex is held.
  void none_waits();

  // Adds a sample at the end. The mutex is held.
  TensorSample& push(TensorSample&& sample);

  // The same; its memory may be that of an earlier one, and hold what that one held.
  TensorSample& push_any();

  // Has the last sample, which is new, wait for its statistics, or for those of `same`. The mutex is held.
  void wait(TensorSample& sample, TensorSample* same, const device::TensorView& view, HeldTensor&& held) noexcept;

  // Takes the first one out. The mutex is held.
  std::unique_ptr<TensorSample> pop();

  // Keeps its memory for later ones.
  void recycle(std::unique_ptr<TensorSample> sample);

  // The last one of those that wait for what is wanted of the same memory: an output of one launch that the next one
  // reads. nullptr: there is none. The mutex is held.
  TensorSample* alias_of(device::StatsWanted wanted, const device::TensorView& view);

  // Enqueues everything that waits. The mutex is held.
  void ask() noexcept;

  // The same for some, all of which want the same.
  void ask(Unasked* begin, Unasked* end) noexcept;

  // Fills in results of the device. False where none are ready.
  bool receive(bool wait) noexcept;

  void* stream_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<TensorSample>> samples_;
  std::vector<std::unique_ptr<TensorSample>> spare_;  // memory of earlier ones
  std::vector<Unasked> unasked_;                      // the last ones of `samples_`
  std::atomic<size_t> n_unasked_{0};                  // changed under the mutex
  // Of `unasked_`; changed under the mutex.
  std::atomic<bool> all_held_{true};
  std::atomic<uint64_t> lowest_{UINT64_MAX}, highest_{0};  // all of their memory is between these
  std::atomic<size_t> n_waiting_{0};                       // changed under the mutex
  bool failed_ = false;  // results that `hash_now` asked for may still come: they would be taken for others
  std::unique_ptr<device::StatsResult[]> results_;
};

}  // namespace aoti_debug
