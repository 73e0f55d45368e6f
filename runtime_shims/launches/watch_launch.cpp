#include "watch_launch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "crash/backtrace.h"
#include "deferral.h"
#include "inspection.h"
#include "launch_record.h"
#include "replay_observer.h"
#include "tensors/dtype.h"
#include "tensors/elements.h"
#include "tensors/readable.h"
#include "tensors/strided.h"
#include "text/number_text.h"

namespace aoti_debug {
namespace {

// An element that made a condition hold; index -1: none can be named.
struct WatchedElement {
  int64_t index = -1;
  double value = 0;
};

bool is_wanted_element(WatchStatistic statistic, double value) {
  switch (statistic) {
    case WATCH_NAN:
      return value != value;
    case WATCH_MAX:
    case WATCH_POSINF:
      return std::isinf(value) && value > 0;
    case WATCH_MIN:
    case WATCH_NEGINF:
      return std::isinf(value) && value < 0;
    case WATCH_NONFINITE:
      return !std::isfinite(value);
    default:
      return std::isinf(value);
  }
}

// The first element that is not finite in the way that the statistic asks for.
WatchedElement find_special(const device::TensorView& view, WatchStatistic statistic) {
  constexpr int64_t kAtOnce = 256;
  uint8_t buffer[kAtOnce * 16];
  const StridedReader reader(view);
  for (int64_t at = 0; at < view.numel; at += kAtOnce) {
    const int64_t count = std::min(kAtOnce, view.numel - at);
    const uint8_t* bytes = reader.read(at, count, buffer);
    for (int64_t i = 0; i < count; ++i) {
      const double value = element_value(view.dtype, bytes + static_cast<size_t>(i) * view.element_bytes);
      if (is_wanted_element(statistic, value)) return {at + i, value};
    }
  }
  return {};
}

// The same of a tensor that is not in host memory.
WatchedElement find_special(const TensorSample& sample, WatchStatistic statistic) {
  WatchedElement first;
  const auto consider = [&](double value, uint64_t count, uint64_t index) {
    if (count == 0 || !is_wanted_element(statistic, value)) return;
    if (first.index < 0 || static_cast<int64_t>(index) < first.index) first = {static_cast<int64_t>(index), value};
  };
  consider(std::nan(""), sample.stats.n_nan, sample.specials.nan);
  consider(HUGE_VAL, sample.stats.n_pos_inf, sample.specials.pos_inf);
  consider(-HUGE_VAL, sample.stats.n_neg_inf, sample.specials.neg_inf);
  return first;
}

// `elements` is nullptr where they are not in host memory.
WatchedElement find_element(WatchStatistic statistic, const TensorSample& sample, const device::TensorView* elements) {
  const TensorStats& stats = sample.stats;
  WatchedElement found{-1, statistic_value(statistic, stats)};
  const bool is_extremum = statistic == WATCH_MIN || statistic == WATCH_MAX || statistic == WATCH_ABSMAX;
  if (is_extremum && std::isfinite(found.value)) {
    TensorStats least = stats;
    least.max_bits = least.min_bits;  // what absmax is of the least element alone
    const bool is_least =
        statistic == WATCH_MIN || (statistic == WATCH_ABSMAX && statistic_value(WATCH_ABSMAX, least) == found.value);
    found.index = static_cast<int64_t>(is_least ? stats.min_index : stats.max_index);
    found.value = statistic_value(is_least ? WATCH_MIN : WATCH_MAX, stats);
    return found;
  }
  const bool is_special = is_extremum || (statistic >= WATCH_NAN && statistic <= WATCH_NONFINITE);
  if (!is_special) return found;
  const WatchedElement special =
      elements == nullptr ? find_special(sample, statistic) : find_special(*elements, statistic);
  return special.index >= 0 ? special : found;
}

std::string hit_text(const Watchpoint& watchpoint, const AotiDebugSite& site, const WatchHit& hit) {
  std::string text = "watchpoint " + watchpoint.text + ": " + site.kernel + " " + site.slots[hit.slot].name +
                     (hit.phase == PHASE_BEFORE ? " before the launch" : "");
  if (hit.element >= 0) {
    text += ", element ";
    append_signed(text, hit.element);
  }
  text += " is ";
  append_real(text, hit.value, 9);
  if (hit.replay != 0) {
    text += ", in replay ";
    append_unsigned(text, hit.replay);
    text += " of the CUDA graph that captured call ";
    append_unsigned(text, hit.call);
  }
  return text;
}

// What is known of a hit from the place of its tensor.
WatchHit hit_of(const TensorLocation& sample, uint32_t watch, uint32_t thread) {
  WatchHit hit{};
  hit.call = sample.id.call;
  hit.launch = sample.id.launch;
  hit.kind = sample.id.kind;
  hit.site = sample.site->id;
  hit.watch = watch;
  hit.thread = thread;
  hit.slot = sample.slot;
  hit.phase = static_cast<uint8_t>(sample.phase);
  return hit;
}

// Does what is asked for where a hit comes while its launch is at hand; returns the WatchActions that were done.
uint16_t act_at_launch(ThreadState& thread) {
  Watchpoints& watchpoints = *thread.run->watchpoints;
  uint16_t actions = 0;
  if (thread.saves_hit) actions |= WATCH_SAVE;
  if (watchpoints.does(WATCH_STACK) && watchpoints.may_write_stack()) {
    actions |= WATCH_STACK;
    write_own_stack(thread.return_address);
  }
  return actions;
}

// Records a hit with this number.
void record_hit(ThreadState& thread, const TensorSample& sample, WatchHit hit, const device::TensorView* elements) {
  Run& run = *thread.run;
  Watchpoints& watchpoints = *run.watchpoints;
  const Watchpoint& watchpoint = watchpoints.all()[hit.watch];
  const bool at_hand = hit.replay == 0;
  if (at_hand) {
    if (!(thread.last_hit == sample.id)) thread.saves_hit = watchpoints.does(WATCH_SAVE) && watchpoints.may_save();
    thread.last_hit = sample.id;
  }
  if ((hit.number & (hit.number - 1)) == 0) run.record_watch_count(hit.watch);
  uint16_t actions = watchpoints.does(WATCH_TALLY) ? WATCH_TALLY : 0;
  const bool stops = watchpoints.does(WATCH_STOP) && run.stopped() == nullptr;
  const bool tallies = watchpoints.does(WATCH_TALLY);
  const bool recorded = !tallies && (at_hand ? watchpoints.is_recorded(hit.number) : watchpoints.may_record_captured());
  if (!recorded && !stops) return;
  const WatchedElement element = find_element(static_cast<WatchStatistic>(hit.statistic), sample, elements);
  hit.element = element.index;
  hit.value = element.value;
  if (at_hand) actions |= act_at_launch(thread);
  const std::string text = hit_text(watchpoint, *sample.site, hit);
  if (stops) {
    actions |= WATCH_STOP;
    run.stop("aoti-debug: stopped by " + text);
  }
  run.record(RECORD_WATCH_HIT, actions, &hit, sizeof(hit), nullptr, 0);
  if (!run.config.print) return;
  thread.text += LinePrefix(sample.id, sample.thread).text();
  thread.text += text + "\n";
}

void evaluate(ThreadState& thread, const TensorSample& sample, const device::TensorView* elements) {
  Watchpoints& watchpoints = *thread.run->watchpoints;
  for (const WatchedSlot& watched : watchpoints.of(*sample.site)) {
    if (watched.slot != sample.slot) continue;
    for (const uint32_t watch : watched.watches) {
      const std::optional<WatchStatistic> statistic = watchpoints.all()[watch].condition.holds(sample.stats);
      watchpoints.evaluate(watch, 1);
      if (!statistic) continue;
      WatchHit hit = hit_of(sample, watch, thread.id);
      hit.statistic = *statistic;
      hit.number = watchpoints.hit(watch, 1);
      record_hit(thread, sample, hit, elements);
    }
  }
}

// Counts a tensor that the device could not read.
void miss(ThreadState& thread, const TensorSample& sample) {
  Run& run = *thread.run;
  if (run.notices.is_first(Notice::kWatchUnread)) {
    const AotiDebugSite& site = *sample.site;
    run.note(NOTE_WATCH_UNREAD,
             "a watchpoint does not see what the device could not read, first " +
                 std::string(site.slots[sample.slot].name) + " of " + site.kernel + ": " + sample.text,
             true);
  }
  for (const WatchedSlot& watched : run.watchpoints->of(*sample.site)) {
    if (watched.slot != sample.slot) continue;
    for (const uint32_t watch : watched.watches) {
      const uint32_t number = run.watchpoints->miss(watch);
      if ((number & (number - 1)) == 0) run.record_watch_count(watch);
    }
  }
}

bool has_statistics(const TensorMeta& meta) {
  const Kind kind = dtype(meta.dtype).kind;
  return kind != Kind::kPacked && is_readable(meta);
}

// Has the graph that captures the call look at the conditions in every replay.
void watch_in_replays(CallState& call, const TensorLocation& place, const TensorMeta& meta,
                      const WatchedSlot& watched) {
  Run& run = *call.run;
  const device::TensorView view = view_of(meta);
  if (view.numel == 0) return;
  bool added = device::add_stats(call.captured, call.stream, view);
  for (const uint32_t watch : watched.watches) {
    if (!added) break;
    const std::vector<WatchNode>& nodes = run.watchpoints->all()[watch].condition.nodes();
    CapturedCondition condition{place.id, place.site, place.slot, place.phase, call.thread->id, place.thread, watch};
    condition.found = device::add_watch(call.captured, call.stream, nodes.data(), static_cast<uint32_t>(nodes.size()));
    added = condition.found != nullptr;
    if (added) run.captured_watches.add(condition);
  }
  if (!added && run.notices.is_first(Notice::kCaptureWithoutWatches)) {
    run.note(NOTE_CAPTURING, "arguments are not watched in a CUDA graph: the device could not add to it", true);
  }
  observe_replays(run);
}

void watch_on_host(ThreadState& thread, const TensorLocation& place, const TensorMeta& meta) {
  const device::TensorView view = view_of(meta);
  TensorSample sample;
  sample.become(place);
  if (sample.phase == PHASE_AFTER) {
    thread.statistics.measure_written(view, &sample.stats);
  } else {
    thread.statistics.measure(view, &sample.stats);
  }
  sample.stats.numel = static_cast<uint64_t>(view.numel);
  evaluate(thread, sample, &view);
}

}  // namespace

void watch(const LaunchState& launch, const AotiDebugValue* values, Phase phase) {
  CallState& call = *launch.call;
  ThreadState& thread = *call.thread;
  Watchpoints& watchpoints = *call.run->watchpoints;
  thread.last_hit = kNoLaunch;
  bool on_device = false;
  for (const WatchedSlot& watched : watchpoints.of(*launch.site)) {
    if (phase == PHASE_BEFORE ? !watched.before : !watched.after) continue;
    TensorMeta meta;
    if (!read_tensor_slot(launch, watched.slot, values, phase == PHASE_AFTER, &meta) || !has_statistics(meta)) continue;
    const TensorLocation place{phase, watched.slot, call.id(launch.launch), thread.shown_id(), launch.site};
    if (meta.device_type == kDeviceCpu) {
      if (!call.capturing) watch_on_host(thread, place, meta);
    } else if (call.captured != nullptr) {
      watch_in_replays(call, place, meta, watched);
    } else if (call.queue != nullptr) {
      on_device = true;
      const uint64_t handle = tensor_handle(launch.site->slots[watched.slot], values);
      call.queue->begin_watched(place, view_of(meta),
                                held_for(call, phase, device::StatsWanted::kNumbers, meta, handle));
    }
  }
  if (on_device) call.queue->settle(call.deferring);
  if (on_device && watchpoints.does(WATCH_SAVE)) show_measured(call, true);
  const bool is_hit = thread.last_hit == call.id(launch.launch);
  if (is_hit && thread.saves_hit) save_launch(launch, values, phase);
  if (is_hit) thread.flush_text(call.run->journal.now_ns());
}

void look_at_watched(ThreadState& thread, const TensorSample& sample) {
  if (sample.state != TensorSample::State::kMeasured) return miss(thread, sample);
  evaluate(thread, sample, nullptr);
}

void look_at_replays(Run& run) {
  Watchpoints& watchpoints = *run.watchpoints;
  ThreadState thread(&run, static_cast<uint32_t>(syscall(SYS_gettid)));
  // Each condition's first is recorded, in the order of replays; the others are counted.
  std::multimap<uint32_t, std::pair<TensorSample, WatchHit>> first_hits;
  run.captured_watches.take_news([&](const CapturedCondition& condition, uint64_t evaluated, uint64_t hits) {
    watchpoints.evaluate(condition.watch, evaluated);
    if (hits == 0) return;
    const uint64_t number = watchpoints.hit(condition.watch, hits);
    if (condition.hits != 0) return;
    const CapturedWatch& found = *condition.found;
    TensorSample sample;
    sample.id = condition.id;
    sample.thread = condition.shown_thread;
    sample.site = condition.site;
    sample.slot = condition.slot;
    sample.phase = condition.phase;
    sample.stats = found.stats;
    sample.specials = {found.nan_index, found.pos_inf_index, found.neg_inf_index};
    WatchHit hit = hit_of(sample, condition.watch, condition.thread);
    hit.statistic = found.statistic;
    hit.replay = found.replay;
    hit.number = number;
    first_hits.emplace(found.replay, std::pair(std::move(sample), hit));
  });
  for (const auto& [replay, hit] : first_hits) record_hit(thread, hit.first, hit.second, nullptr);
  if (!thread.text.empty()) run.live.write(thread.text);
}

void look_at_remaining(Run& run, bool wait) {
  if (run.watchpoints == nullptr) return;
  look_at_replays(run);
  run.headlines.drain();
  ThreadState thread(&run, static_cast<uint32_t>(syscall(SYS_gettid)));
  for (StatsQueue* queue : run.stats_queues()) {
    queue->take(wait, [&thread](const TensorSample& sample) {
      if (sample.watched) look_at_watched(thread, sample);
    });
  }
  if (!thread.text.empty()) run.live.write(thread.text);
}

}  // namespace aoti_debug
