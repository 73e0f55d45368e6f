// Breadcrumbs: shared memory in which the device stores the last launch that it has completed, a word for each stream
// and each captured call.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "breadcrumb_pace.h"
#include "formats/journal_format.h"
#include "machine/shared_file.h"

namespace aoti_debug {

class Crumbs {
 public:
  static constexpr uint16_t kNoSlot = UINT16_MAX;
  static constexpr uint64_t kMaxCapturedLaunches = 24;  // each breadcrumb makes every replay 1.3 us longer

  // Makes the shared memory, registers it with the device and links it as crumbs.bin in the run directory. A crumb
  // comes after every `every` launches; 0: as CrumbPace decides.
  // "", or why there are no crumbs.
  std::string open(const std::string& run_directory, uint64_t every);

  // A crumb comes at least after so many launches that no CUDA graph captures.
  uint64_t most_launches() const { return every_ == 0 ? CrumbPace::kMaxLaunches : every_; }

  bool is_open() const { return registered_; }

  // The slot of a stream as a model uses it; kNoSlot where all are taken. The same address may name the default streams
  // of two devices, which is why the model counts.
  uint16_t slot(void* stream, const void* model);

  // A slot for one call that a CUDA graph captures on `stream`: its replays write to it whenever they run. As long as
  // open() was not told otherwise, a crumb comes after kMaxCapturedLaunches. kNoSlot where kCaptured are taken:
  // streams need slots too.
  uint16_t captured_slot(void* stream);

  // Has every replay of what is captured now begin with `sequence`, and count itself. nullptr: it does not; otherwise
  // what device::add_stats, device::keep_stats and device::add_watch take.
  void* begin_captured(void* stream, uint16_t slot, uint32_t sequence) const;

  // Says, on the host, that the device has completed `sequence`.
  void complete(uint16_t slot, uint32_t sequence) {
    __atomic_store_n(&slots()[slot].completed, sequence, __ATOMIC_RELAXED);
  }

  // How many replays of a captured call have begun.
  uint32_t replays(uint16_t slot) const { return __atomic_load_n(&slots()[slot].replays, __ATOMIC_ACQUIRE); }

  // Has the pace of a slot decide for one call, until that gives it back. False while it does for another: a model runs
  // in one thread at a time; where two calls meet nevertheless, every launch of the second has a crumb.
  bool claim(uint16_t slot) { return !paces_[slot].claimed.exchange(true, std::memory_order_acquire); }
  void give_back(uint16_t slot) { paces_[slot].claimed.store(false, std::memory_order_release); }

  // What follows the launch `sequence`, which ends now. `own`: the slot of its call's own stream, which knows how fast
  // the launches of all streams of the call follow each other; kNoSlot: it has none. The call has claimed both.
  AfterLaunch due(uint16_t slot, uint16_t own, uint64_t now_ns, uint32_t sequence) {
    Pace& mine = paces_[slot];
    Pace& whole = own == kNoSlot ? mine : paces_[own];
    if (mine.every == 0) {
      const CrumbSlot& read = slots()[&whole - paces_];
      whole.rate.add(now_ns, sequence, [&read] { return __atomic_load_n(&read.completed, __ATOMIC_RELAXED); });
    }
    return mine.pace.due(mine.every, whole.rate);
  }

  // Whether the last launch of the call that has claimed the slot has no crumb yet.
  bool take_last(uint16_t slot) { return paces_[slot].pace.take_last(); }

  // Asks the device to store `sequence` once it has completed what was enqueued on `stream` so far.
  bool write(void* stream, uint16_t slot, uint32_t sequence) const;

  // Puts a copy into the run directory in place of the link, and removes the shared memory.
  void keep_copy() { shared_.keep_copy(kBytes); }

 private:
  static constexpr uint32_t kSlots = 1023;
  static constexpr uint32_t kCaptured = 512;  // at most so many of them
  static constexpr size_t kBytes = sizeof(CrumbHeader) + kSlots * sizeof(CrumbSlot);

  struct Pace {
    LaunchRate rate;
    CrumbPace pace;
    std::atomic<bool> claimed{false};
    uint64_t every = 0;  // after so many launches; 0: as the pace decides
  };

  uint16_t take(void* stream, const void* model, uint64_t every);

  static size_t slot_offset(uint16_t slot) { return sizeof(CrumbHeader) + slot * sizeof(CrumbSlot); }
  CrumbSlot* slots() const { return reinterpret_cast<CrumbSlot*>(shared_.base() + sizeof(CrumbHeader)); }

  SharedFile shared_;
  uint64_t every_ = 0;
  bool registered_ = false;
  std::mutex mutex_;
  uint32_t used_ = 0;
  uint32_t captured_ = 0;
  const void* models_[kSlots] = {};  // this, which is no model: a captured call
  Pace paces_[kSlots];
};

}  // namespace aoti_debug
