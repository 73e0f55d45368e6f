#include "replay_statistics.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "statistics_record.h"
#include "tensors/strided.h"
#include "text/number_text.h"

namespace aoti_debug {
namespace {

bool waits_for_replays(const CapturedSight& captured) { return captured.sight.state == Sight::State::kWaiting; }

void leave_unread(Sight& sight, const char* why) {
  sight.state = Sight::State::kUnread;
  sight.text = why;
}

// Fills in what is there of a tensor; returns the replay that it is of.
uint32_t read_replay(CapturedSight& captured, uint32_t begun, device::StatsResult& result) {
  if (captured.kept == nullptr) return begun;
  uint32_t replay = 0;
  switch (device::read_kept(captured.kept, &result, &replay)) {
    case device::Kept::kWhole:
      captured.sight.take(result);
      return replay == 0 ? begun : replay;
    case device::Kept::kTorn:
      leave_unread(captured.sight, "not read: a replay was being measured when the run ended");
      return begun;
    case device::Kept::kNothing:
      break;
  }
  leave_unread(captured.sight, "not read: no replay has measured it");
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
  for (CapturedSight& captured : statistics.sights) {
    const uint32_t replay = read_replay(captured, begun, result);
    if (replay < begun) ++earlier;
    record_replay_statistics(thread, {replay, std::max(replay, begun)}, captured.sight, run.journal.now_ns());
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

void record_all(Run& run) {
  ThreadState thread(&run, static_cast<uint32_t>(syscall(SYS_gettid)));
  std::vector<uint32_t> idle;
  run.captured_statistics.take([&](uint32_t call, CapturedCallStatistics& statistics) {
    const uint32_t begun = run.crumbs.replays(statistics.crumb_slot);
    if (begun == 0) return idle.push_back(call);
    record_call(thread, call, statistics, begun);
  });
  if (idle.empty()) return;
  run.note(NOTE_CAPTURING, "no replay of a CUDA graph has measured the tensors of " + calls_text(idle), false);
}

}  // namespace

void measure_in_replays(CallState& call, std::vector<CapturedSight> sights) {
  Run& run = *call.run;
  const size_t room = run.captured_statistics.take_room(sights.size());
  if (room < sights.size() && !run.full_capture_noted.exchange(true)) {
    std::string text = "CUDA graphs measure no further tensors in their replays: they measure ";
    append_unsigned(text, CapturedStatistics::kMost);
    run.note(NOTE_CAPTURING, text, true);
  }
  sights.erase(sights.begin() + static_cast<std::ptrdiff_t>(room), sights.end());
  if (sights.empty()) return;
  std::vector<device::TensorView> views;
  for (const CapturedSight& captured : sights) {
    if (waits_for_replays(captured)) views.push_back(view_of(captured.sight.meta));
  }
  std::vector<const void*> kept(views.size());
  if (!views.empty()) {
    device::keep_stats(call.captured, call.stream, views.data(), static_cast<int>(views.size()),
                       sights.front().sight.wanted, kept.data());
  }
  auto next = kept.begin();
  for (CapturedSight& captured : sights) {
    if (!waits_for_replays(captured)) continue;
    captured.kept = *next++;
    if (captured.kept == nullptr)
      leave_unread(captured.sight, "not read: the device could not add its statistics to the graph");
  }
  const LaunchId id = sights.front().sight.id;
  run.captured_statistics.add(id, call.stream_slot, std::move(sights));
}

void record_replays(Run& run) {
  try {
    record_all(run);
  } catch (const std::exception&) {
    run.live.write("aoti-debug: what replays of CUDA graphs have measured is not recorded: out of memory\n");
  }
}

}  // namespace aoti_debug
