#include "inspection.h"

#include <string.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deferral.h"
#include "device/device.h"
#include "launch_name.h"
#include "launch_record.h"
#include "replay_statistics.h"
#include "statistics_record.h"
#include "subjects.h"
#include "summary_row.h"
#include "tensors/dtype.h"
#include "tensors/hashing.h"
#include "tensors/readable.h"
#include "tensors/strided.h"
#include "watch_launch.h"

namespace aoti_debug {
namespace {

constexpr int64_t kShownElements = 64;

void print_sample(ThreadState& thread, const TensorSample& sample) {
  if (sample.state == TensorSample::State::kHeadline) {
    thread.text += sample.text;
    return;
  }
  const LinePrefix prefix(sample.id, sample.thread);
  const AotiDebugSlot& slot = sample.site->slots[sample.slot];
  switch (sample.state) {
    case TensorSample::State::kMeasured:
      return print_tensor(thread.text, prefix, slot, sample.meta, sample.stats, sample.values.data());
    case TensorSample::State::kUninitialised:
      return print_unread(thread.text, prefix, slot, sample.meta, "not initialised");
    default:
      return print_unread(thread.text, prefix, slot, sample.meta, sample.text);
  }
}

void show(ThreadState& thread, const TensorSample& sample) {
  if (sample.watched) return look_at_watched(thread, sample);
  Run& run = *thread.run;
  if (sample.summarised && sample.state == TensorSample::State::kMeasured) add_summary(run, sample, 0);
  const bool is_launch = sample.state == TensorSample::State::kHeadline;
  const uint32_t level = run.config.level;
  if (!is_launch && measures_tensors(level)) record_statistics(thread, sample, run.journal.now_ns());
  if (run.config.print && (is_launch || level == LEVEL_VALUES)) print_sample(thread, sample);
}

void hash_on_host(StatisticsMemo& memo, TensorSample& sample) {
  sample.state = TensorSample::State::kMeasured;
  sample.stats = TensorStats{};
  sample.stats.hash = memo.hash(view_of(sample.meta));
}

void measure_on_host(StatisticsMemo& memo, TensorSample& sample) {
  const device::TensorView view = view_of(sample.meta);
  sample.state = TensorSample::State::kMeasured;
  sample.stats = TensorStats{};
  if (sample.phase == PHASE_AFTER) {
    memo.measure_written(view, &sample.stats);
  } else {
    memo.measure(view, &sample.stats);
  }
  sample.stats.value_bytes = 0;
  if (view.numel > kShownElements) return;
  uint8_t buffer[kShownElements * 16];
  const size_t bytes = static_cast<size_t>(view.numel) * view.element_bytes;
  const uint8_t* elements = StridedReader(view).read(0, view.numel, buffer);
  sample.values.assign(elements, elements + bytes);
  sample.stats.value_bytes = static_cast<uint32_t>(bytes);
}

// Whether the device has to measure the tensor. Otherwise it is measured here, or `text` says why not.
bool is_for_device(const CallState& call, TensorSample& sample) {
  const AotiDebugSlot& slot = sample.site->slots[sample.slot];
  // With guards, new memory is filled with known bytes: what a launch reads of them shows in the values.
  const bool is_filled = call.run->config.guards && slot.role != AOTI_DEBUG_ROLE_OUT;
  StatisticsMemo& memo = call.thread->statistics;
  sample.text = unreadable(sample.meta);
  if (sample.phase == PHASE_BEFORE && !has_data_before(slot) && !is_filled) {
    sample.state = TensorSample::State::kUninitialised;
  } else if (!sample.text.empty()) {
    sample.state = TensorSample::State::kUnread;
  } else if (dtype(sample.meta.dtype).kind == Kind::kPacked) {
    sample.state = TensorSample::State::kUnread;
    sample.text = std::string("not read: ") + dtype(sample.meta.dtype).name + " is packed";
  } else if (sample.meta.device_type != kDeviceCpu) {
    return true;
  } else if (call.capturing) {
    sample.state = TensorSample::State::kUnread;
    sample.text = "not read: it is in host memory, and a replay runs nothing on the host";
  } else {
    sample.wanted == device::StatsWanted::kHash ? hash_on_host(memo, sample) : measure_on_host(memo, sample);
  }
  return false;
}

// Measures one tensor, or has the device do it, and hands it on in order. `handle` is its AtenTensorHandle.
void measure(CallState& call, TensorSample sample, uint64_t handle) {
  if (is_for_device(call, sample)) {
    sample.own_dims();
    const device::TensorView view = view_of(sample.meta);
    HeldTensor held = held_for(call, sample.phase, sample.wanted, sample.meta, handle);
    return call.queue->begin(std::move(sample), view, std::move(held));
  }
  if (call.queue == nullptr) return show(*call.thread, sample);
  sample.own_dims();
  call.queue->add(std::move(sample));
}

void measure_all(const LaunchState& launch, const AotiDebugValue* values, Phase phase, bool after) {
  CallState& call = *launch.call;
  std::vector<CapturedSample> captured;
  for (const Subject& subject : subjects(launch, values, phase, after)) {
    TensorSample sample;
    sample.phase = phase;
    sample.slot = subject.slot;
    sample.id = call.id(launch.launch);
    sample.thread = call.thread->shown_id();
    sample.site = launch.site;
    sample.meta = subject.meta;
    sample.summarised = call.summarised && after && launch.site->slots[subject.slot].role != AOTI_DEBUG_ROLE_IN;
    const bool is_recorded = measures_tensors(call.level);
    if (!is_recorded && !sample.summarised) continue;
    if (call.level == LEVEL_HASH && !sample.summarised) sample.wanted = device::StatsWanted::kHash;
    if (!is_recorded) sample.wanted = device::StatsWanted::kNumbers;
    if (call.capturing) {
      if (is_for_device(call, sample)) sample.state = TensorSample::State::kWaiting;
      sample.own_dims();
      captured.push_back({std::move(sample)});
    } else {
      measure(call, std::move(sample), tensor_handle(launch.site->slots[subject.slot], values));
    }
  }
  if (!captured.empty()) measure_in_replays(call, std::move(captured));
}

void record_skipped(ThreadState& thread, const SaveRequest& request, const std::string& reason) {
  TensorFile record{};
  record.call = request.id.call;
  record.launch = request.id.launch;
  record.slot = request.slot;
  record.kind = request.id.kind;
  record.phase = static_cast<uint8_t>(request.phase);
  record.status = SAVE_SKIPPED;
  record.bytes = logical_bytes(request.meta);
  record.reason_bytes = static_cast<uint32_t>(reason.size());
  uint8_t* to = thread.journal.start(static_cast<uint32_t>(sizeof(record) + reason.size()));
  if (to == nullptr) return;
  memcpy(to, &record, sizeof(record));
  memcpy(to + sizeof(record), reason.data(), reason.size());
  thread.journal.finish(RECORD_TENSOR_FILE, 0, thread.run->journal.now_ns());
}

void save_on_device(CallState& call, const std::vector<SaveRequest>& requests) {
  if (requests.empty()) return;
  show_measured(call, true);  // the queue must be empty
  std::vector<device::TensorView> views;
  views.reserve(requests.size());
  for (const SaveRequest& request : requests) views.push_back(view_of(request.meta));
  const std::vector<std::optional<uint64_t>> hashes = call.queue->hash_now(views);
  for (size_t i = 0; i < requests.size(); ++i) {
    call.run->store->save_device(call.stream, requests[i], hashes[i], &call.saves, &call.thread->journal);
  }
}

void save_subjects(const LaunchState& launch, const std::vector<Subject>& found, Phase phase) {
  CallState& call = *launch.call;
  TensorStore* store = call.run->store.get();
  if (store == nullptr || !store->is_saving()) return;
  std::vector<SaveRequest> on_device;
  for (const Subject& subject : found) {
    const SaveRequest request{call.id(launch.launch),
                              phase,
                              subject.slot,
                              launch.site->kernel,
                              launch.site->slots[subject.slot].name,
                              subject.meta,
                              phase == PHASE_AFTER && launch.site->slots[subject.slot].role != AOTI_DEBUG_ROLE_IN};
    if (const std::string reason = unreadable(subject.meta); !reason.empty()) {
      record_skipped(*call.thread, request, reason);
    } else if (subject.meta.device_type == kDeviceCpu) {
      store->save_host(request, &call.thread->journal);
    } else {
      on_device.push_back(request);
    }
  }
  save_on_device(call, on_device);
}

// The line that names the launch, in its place among the tensors.
void print_headline(const LaunchState& launch, Phase phase) {
  CallState& call = *launch.call;
  ThreadState& thread = *call.thread;
  if (call.level == LEVEL_NAMES && call.run->has_device) return add_headline(launch, phase);
  if (!call.run->config.print) return;
  const LinePrefix prefix(call.id(launch.launch), thread.shown_id());
  if (call.queue == nullptr) {
    return print_launch(thread.text, prefix, phase, launch.site->kernel, call.loop_counts());
  }
  TensorSample sample;
  sample.state = TensorSample::State::kHeadline;
  print_launch(sample.text, prefix, phase, launch.site->kernel, call.loop_counts());
  call.queue->add(std::move(sample));
}

}  // namespace

void save_launch(const LaunchState& launch, const AotiDebugValue* values, Phase phase) {
  const AotiDebugSite& site = *launch.site;
  std::vector<Subject> read, written;
  for (uint32_t i = 0; i < site.n_slots; ++i) {
    const AotiDebugSlot& slot = site.slots[i];
    if (!is_tensor_form(slot.form) || is_repeated(site, i)) continue;
    if (phase == PHASE_BEFORE && slot.role == AOTI_DEBUG_ROLE_OUT) continue;
    Subject subject{static_cast<uint16_t>(i), {}};
    if (read_slot(slot, values, phase == PHASE_AFTER, &subject.meta).tag != VALUE_TENSOR) continue;
    const bool is_before = phase == PHASE_BEFORE || slot.role == AOTI_DEBUG_ROLE_IN;
    (is_before ? read : written).push_back(subject);
  }
  save_subjects(launch, read, PHASE_BEFORE);
  save_subjects(launch, written, PHASE_AFTER);
}

void show_measured(CallState& call, bool wait) {
  if (call.queue == nullptr) return;
  ThreadState& thread = *call.thread;
  call.queue->take(wait, [&thread](const TensorSample& sample) { show(thread, sample); });
}

void inspect(const LaunchState& launch, const AotiDebugValue* values, Phase phase, bool succeeded, uint64_t now_ns) {
  CallState& call = *launch.call;
  ThreadState& thread = *call.thread;
  const bool after = phase == PHASE_AFTER;
  if (call.level >= LEVEL_VALUES && call.run->config.level != LEVEL_HASH) print_headline(launch, phase);
  if (!after || succeeded) {
    if (measures_tensors(call.level) || (call.summarised && after)) {
      measure_all(launch, values, phase, after);
    }
    if (call.level == LEVEL_SAVE) save_subjects(launch, subjects(launch, values, phase, after), phase);
  }
  if (call.queue != nullptr) call.queue->settle(call.deferring);
  if (!call.run->has_device) return thread.flush_text(now_ns);
  if (!is_flush_due(thread, now_ns)) return;
  show_measured(call, call.queue != nullptr && call.queue->is_long());
  thread.flush_text(now_ns);
}

}  // namespace aoti_debug
