#include "replay_observer.h"

#include <chrono>
#include <exception>

#include "replay_statistics.h"
#include "watch_launch.h"

namespace aoti_debug {

void observe_replays(Run& run) {
  // Measuring a tensor takes at least a microsecond: what replays leave of a call meanwhile fits its room.
  const std::chrono::milliseconds pause(run.summaries.is_open() ? 10 : 100);
  run.replay_observer.start(pause, [&run] {
    try {
      if (run.watchpoints != nullptr) look_at_replays(run);
    } catch (const std::exception& error) {
      run.live.write_failure("some replays of CUDA graphs are not watched", error);
    }
    if (run.summaries.is_open()) summarise_replays(run);
  });
}

}  // namespace aoti_debug
