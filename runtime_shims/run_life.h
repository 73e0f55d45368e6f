// The life of the run that calls are recorded in: it begins with the first of them, gives way to another one, and ends
// with the library or the process.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "run/run.h"
#include "run/thread_state.h"

namespace aoti_debug {

// An exception has ended a piece of work for the recording: it is told, and nothing more is recorded.
void stop_recording(const std::exception& error);

// Runs `work`; an exception ends the recording, not the model.
template <class Work>
void guarded(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    stop_recording(error);
  }
}

// Counts forks, and the runs that have ended before their library: what began before belongs to another run.
uint32_t generation();

// One call less is in the run; the last one ends a retired run.
void leave(Run& run);

struct LeaveRun {
  void operator()(Run* run) const { leave(*run); }
};
using PinnedRun = std::unique_ptr<Run, LeaveRun>;

// The run that calls begin in, with one call more; nullptr where nothing is recorded.
PinnedRun enter_run();

// The state of this thread in the run; made with its first call in it.
ThreadState* thread_state(Run* run);

}  // namespace aoti_debug
