#include "replay_statistics.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "replay_observer.h"
#include "statistics_record.h"
#include "summary_row.h"
#include "tensors/strided.h"
#include "text/number_text.h"

namespace aoti_debug {
namespace {

bool waits_for_replays(const CapturedSample& captured) {
  return captured.sample.state == TensorSample::State::kWaiting;
}

void leave_unread(TensorSample& sample, const char* why) {
  sample.state = TensorSample::State::kUnread;
  sample.text = why;
}

// Fills in what is there of a tensor; returns the replay that it is of.
uint32_t read_replay(CapturedSample& captured, uint32_t begun, device::StatsResult& result) {
  if (captured.kept == nullptr) return begun;
  uint32_t replay = 0;
  switch (device::read_last(captured.kept, &result, &replay)) {
    case device::Kept::kWhole:
      captured.sample.take(result);
      return replay == 0 ? begun : replay;
    case device::Kept::kTorn:
      leave_unread(captured.sample, "not read: a replay was being measured when the run ended");
      return begun;
    case device::Kept::kNothing:
      break;
  }
  leave_unread(captured.sample, "not read: no replay has measured it");
  return begun;
}

std::string calls_text(const std::vector<uint32_t>& calls) {
  constexpr size_t kShown = 8;
  std::string text = calls.size() == 1 ? "call " : "calls ";
  for (size_t i = 0; i < calls.size() && i < kShown; ++i) {
    if (i != 0) text += ", ";
    append_unsigned(text, calls[i]);
  }
  return calls.size() > kShown ? text + ", …" : text;
}

// What `begun` replays of a call have left.
void record_call(ThreadState& thread, uint32_t call, CapturedCallStatistics& statistics, uint32_t begun) {
  Run& run = *thread.run;
  uint64_t earlier = 0;
  device::StatsResult result{};
  for (CapturedSample& captured : statistics.samples) {
    const uint32_t replay = read_replay(captured, begun, result);
    if (replay < begun) ++earlier;
    record_replay_statistics(thread, {replay, std::max(replay, begun)}, captured.sample, run.journal.now_ns());
  }
  if (earlier == 0) return;
  std::string text = "replay ";
  append_unsigned(text, begun);
  text += " of the CUDA graph that captured call ";
  append_unsigned(text, call);
  text += " had not measured every tensor when the run ended: the statistics of ";
  append_unsigned(text, earlier);
  run.note(NOTE_CAPTURING, text + " are those of an earlier one", false);
}

bool is_summarised(const CapturedSample& captured) { return captured.sample.summarised && captured.kept != nullptr; }

// Goes past replays that have left nothing any more.
void skip_missed(Run& run, CapturedCallStatistics& statistics, uint32_t begun) {
  const uint32_t kept = statistics.kept_replays;
  if (begun < kept || statistics.next_replay > begun - kept) return;
  const auto& samples = statistics.samples;
  const auto count = [&](size_t from) {
    return static_cast<uint64_t>(
        std::count_if(samples.begin() + static_cast<std::ptrdiff_t>(from), samples.end(), is_summarised));
  };
  const uint64_t of_each = count(0);
  uint64_t missed = 0;
  for (; statistics.next_replay <= begun - kept; ++statistics.next_replay, statistics.next_sample = 0) {
    if (run.summaries.wants(statistics.next_replay))
      missed += statistics.next_sample == 0 ? of_each : count(statistics.next_sample);
  }
  run.summaries.miss(missed);
}

// Adds to the summaries what `begun` replays of a call have left. `last`: what is not there yet will not come.
void summarise_call(Run& run, CapturedCallStatistics& statistics, uint32_t begun, bool last) {
  if (!run.summaries.is_open()) return;
  skip_missed(run, statistics, begun);
  device::StatsResult result{};
  for (; statistics.next_replay <= begun; ++statistics.next_replay, statistics.next_sample = 0) {
    const uint32_t replay = statistics.next_replay;
    if (!run.summaries.wants(replay)) continue;
    for (; statistics.next_sample < statistics.samples.size(); ++statistics.next_sample) {
      CapturedSample& captured = statistics.samples[statistics.next_sample];
      if (!is_summarised(captured)) continue;
      const device::Kept kept = device::read_replay(captured.kept, replay, &result);
      if (kept == device::Kept::kNothing && !last) return;
      if (kept == device::Kept::kTorn) run.summaries.miss(1);
      if (kept != device::Kept::kWhole) continue;
      captured.sample.take(result);
      if (captured.sample.state == TensorSample::State::kMeasured) add_summary(run, captured.sample, replay);
    }
  }
}

void note_missed_summaries(Run& run) {
  const uint64_t missed = run.summaries.missed();
  if (missed == 0) return;
  std::string text = "replays of CUDA graphs followed one another faster than they could be read: the summaries lack ";
  append_unsigned(text, missed);
  run.note(NOTE_CAPTURING, text + " rows", false);
}

// The tensors of a launch that are measured alike, in one or a few kernels.
void keep_alike(CallState& call, CapturedSample* begin, CapturedSample* end) {
  std::vector<device::TensorView> views;
  for (const CapturedSample* each = begin; each != end; ++each) {
    if (waits_for_replays(*each)) views.push_back(view_of(each->sample.meta));
  }
  if (views.empty()) return;
  std::vector<const void*> kept(views.size());
  device::keep_stats(call.captured, call.stream, views.data(), static_cast<int>(views.size()), begin->sample.wanted,
                     begin->sample.summarised ? call.kept_replays : 1, kept.data());
  auto next = kept.begin();
  for (; begin != end; ++begin) {
    if (!waits_for_replays(*begin)) continue;
    begin->kept = *next++;
    if (begin->kept == nullptr)
      leave_unread(begin->sample, "not read: the device could not add its statistics to the graph");
  }
}

bool is_alike(const TensorSample& a, const TensorSample& b) {
  return a.wanted == b.wanted && a.summarised == b.summarised;
}

// Where there is no room for the results of every replay, a tensor is not summarised.
void take_results(CallState& call, std::vector<CapturedSample>& samples) {
  Run& run = *call.run;
  for (CapturedSample& captured : samples) {
    TensorSample& sample = captured.sample;
    if (!sample.summarised || !waits_for_replays(captured)) continue;
    sample.summarised = run.captured_statistics.take_results(call.kept_replays);
    if (sample.summarised || !run.notices.is_first(Notice::kTooManySummarised)) continue;
    run.note(NOTE_CAPTURING, "no summaries of further tensors in replays of CUDA graphs: too many were captured", true);
  }
}

void record_all(Run& run) {
  ThreadState thread(&run, static_cast<uint32_t>(syscall(SYS_gettid)));
  std::vector<uint32_t> idle;
  run.captured_statistics.take([&](uint32_t call, CapturedCallStatistics& statistics) {
    const uint32_t begun = run.crumbs.replays(statistics.crumb_slot);
    if (begun == 0) return idle.push_back(call);
    summarise_call(run, statistics, begun, true);
    if (measures_tensors(run.config.level)) record_call(thread, call, statistics, begun);
  });
  run.summaries.flush();
  note_missed_summaries(run);
  if (idle.empty()) return;
  run.note(NOTE_CAPTURING, "no replay of a CUDA graph has measured the tensors of " + calls_text(idle), false);
}

}  // namespace

void measure_in_replays(CallState& call, std::vector<CapturedSample> samples) {
  Run& run = *call.run;
  const size_t room = run.captured_statistics.take_room(samples.size());
  if (room < samples.size() && run.notices.is_first(Notice::kTooManyCaptured)) {
    std::string text = "CUDA graphs measure no further tensors in their replays: they measure ";
    append_unsigned(text, CapturedStatistics::kMaxTensors);
    run.note(NOTE_CAPTURING, text, true);
  }
  samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(room), samples.end());
  take_results(call, samples);
  if (!measures_tensors(call.level)) {
    const auto unwanted = [](const CapturedSample& captured) { return !captured.sample.summarised; };
    samples.erase(std::remove_if(samples.begin(), samples.end(), unwanted), samples.end());
  }
  if (samples.empty()) return;
  for (auto begin = samples.begin(); begin != samples.end();) {
    const auto end = std::find_if(
        begin, samples.end(), [begin](const CapturedSample& other) { return !is_alike(begin->sample, other.sample); });
    keep_alike(call, &*begin, &*begin + (end - begin));
    begin = end;
  }
  const LaunchId id = samples.front().sample.id;
  run.captured_statistics.add(id, call.stream_slot, call.kept_replays, std::move(samples));
  if (call.summarised) observe_replays(run);
}

void summarise_replays(Run& run) {
  try {
    run.captured_statistics.visit([&](CapturedCallStatistics& statistics) {
      summarise_call(run, statistics, run.crumbs.replays(statistics.crumb_slot), false);
    });
    run.summaries.flush();
  } catch (const std::exception& error) {
    run.live.write_failure("some replays of CUDA graphs are not summarised", error);
  }
}

void record_replays(Run& run) {
  try {
    record_all(run);
  } catch (const std::exception& error) {
    run.live.write_failure("what replays of CUDA graphs have measured is not recorded", error);
  }
}

}  // namespace aoti_debug
