#include "launch_name.h"

#include <string.h>

namespace aoti_debug {

void add_headline(const LaunchState& launch, Phase phase) {
  const CallState& call = *launch.call;
  ThreadState& thread = *call.thread;
  if (!call.run->config.print) return;
  const LaunchId id = call.id(launch.launch);
  if (phase == PHASE_AFTER && !thread.headlines.empty()) {
    Headline& last = thread.headlines.back();
    if (last.id == id && last.phases == Headline::kBefore) {
      last.phases = Headline::kBoth;
      return;
    }
  }
  Headline line{launch.site->kernel, id, thread.shown_id(), Headline::kBefore, 0, {}};
  if (phase == PHASE_AFTER) line.phases = Headline::kAfter;
  line.n_loops = static_cast<uint8_t>(call.loop_counts().n);
  memcpy(line.loops, call.loops, sizeof(line.loops));
  thread.headlines.push_back(line);
}

bool is_flush_due(const ThreadState& thread, uint64_t now_ns) {
  constexpr uint64_t kFlushNs = 1000000;
  constexpr size_t kFlushBytes = 32768;
  constexpr size_t kFlushLines = 512;
  return now_ns - thread.flushed_ns >= kFlushNs || thread.text.size() >= kFlushBytes ||
         thread.headlines.size() >= kFlushLines;
}

void name_launch(const LaunchState& launch, Phase phase, uint64_t now_ns) {
  ThreadState& thread = *launch.call->thread;
  add_headline(launch, phase);
  if (is_flush_due(thread, now_ns)) thread.flush_text(now_ns);
}

}  // namespace aoti_debug
