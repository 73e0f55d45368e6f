// The beginning, the change and the end of a run (run_life.h), and the functions of aoti_debug.h that bring them about.
#include "run_life.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

#include "aoti_debug.h"
#include "crash/backtrace.h"
#include "device/device.h"
#include "launches/replay_statistics.h"
#include "launches/watch_launch.h"
#include "machine/clock.h"
#include "machine/parallel.h"
#include "print/print_operator.h"
#include "run/configuration.h"
#include "run/control.h"

namespace aoti_debug {
namespace {

constexpr uint32_t kLevelUnread = UINT32_MAX;
constexpr uint64_t kPatienceNs = 1000000000;  // how long new calls wait for running ones, once for each request
constexpr uint32_t kPauseUs = 100;

std::atomic<uint32_t> g_level{kLevelUnread};
std::atomic<Run*> g_run{nullptr};
Run* g_retired = nullptr;               // the last of the runs whose threads may still know them; g_mutex guards it
std::atomic<uint32_t> g_generation{0};  // counts forks
std::mutex g_mutex;                     // guards the start of a run
pthread_key_t g_thread_key;             // its destructor runs when a thread ends
bool g_thread_key_made = false;
bool g_forks_seen = false;
bool g_over = false;                   // this library is being unloaded
std::atomic<bool> g_failed{false};     // the recording has stopped because something of ours failed
std::atomic<int32_t> g_containers{0};  // of models, that were made and not deleted yet

thread_local ThreadState* t_thread = nullptr;
thread_local uint32_t t_generation = 0;  // that t_thread belongs to

// This thread's state; nullptr where it has none, or that of a run that has ended or of the parent of a fork.
ThreadState* current_thread() {
  return t_generation == g_generation.load(std::memory_order_relaxed) ? t_thread : nullptr;
}

void on_thread_end(void* state) {
  const bool current = current_thread() == state;
  t_thread = nullptr;
  remove_signal_stack();
  // After a fork, the journal that the state writes to is another process's; after the end of its run it is freed.
  if (!current) return;
  const ThreadState* thread = static_cast<ThreadState*>(state);
  if (thread->run == g_run.load()) thread->run->forget_thread(thread);
}

// In the child of a fork: what the parent recorded is the parent's alone. The locks may be held by threads that the
// child does not have.
void on_fork() {
  g_generation.fetch_add(1);
  g_run.store(nullptr);
  g_retired = nullptr;
  t_thread = nullptr;
  new (&g_mutex) std::mutex;
  use_one_thread();
  forget_prints();
  forget_crashes();
  control.forget();
}

// Handlers that on_fork is one of, once in a process. g_mutex is held.
void watch_forks() {
  if (g_forks_seen) return;
  const int error = pthread_atfork(nullptr, nullptr, on_fork);
  if (error != 0) throw std::runtime_error(std::string("pthread_atfork: ") + strerror(error));
  g_forks_seen = true;
}

// Notes in the run of the calling thread's call why the recording stopped, unless that fails, too: it was told above.
void note_failure(const std::exception& error) {
  const ThreadState* thread = current_thread();
  if (thread == nullptr || thread->call == nullptr) return;
  try {
    thread->run->note(NOTE_RECORDING_STOPPED, std::string("recording stopped: ") + failure_text(error), false);
  } catch (const std::exception&) {
    return;
  }
}

// Records what is there and ends the run. `idle`: no thread is within a call.
void record_remaining(Run& run, bool idle) {
  drain_prints();
  run.replay_observer.stop();
  guarded([&] { look_at_remaining(run, idle); });
  record_replays(run);
  guarded([&] { run.note_results(idle); });
  guarded([&] { run.finish(idle, g_failed.load()); });
  if (idle && run.has_device) device::end_run();
}

void finish_run() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_over = true;
  g_level.store(0);
  if (g_thread_key_made) pthread_key_delete(g_thread_key);
  release_crashes();
  for (Run* run = g_retired; run != nullptr; run = run->retired_before) {
    if (!run->ended.exchange(true)) record_remaining(*run, run->active_calls.load() == 0);
  }
  std::unique_ptr<Run> run(g_run.exchange(nullptr));
  if (run == nullptr) return;
  const bool idle = run->active_calls.load() == 0;
  record_remaining(*run, idle);
  // At exit another thread may still be within a call: then what it uses stays.
  if (!idle) static_cast<void>(run.release());
}

// Ends the run, if there is one and no thread is within a call; false where one is. A later call begins another run.
bool end_run() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const Run* run = g_run.load();
  if (g_over || (run != nullptr && run->active_calls.load() != 0)) return false;
  for (const Run* retired = g_retired; retired != nullptr; retired = retired->retired_before) {
    if (retired->active_calls.load() != 0) return false;
  }
  if (run == nullptr) return true;
  release_crashes();
  const std::unique_ptr<Run> ended(g_run.exchange(nullptr));
  g_generation.fetch_add(1);
  record_remaining(*ended, true);
  return true;
}

}  // namespace

ThreadState* this_thread_state() { return current_thread(); }

uint32_t generation() { return g_generation.load(std::memory_order_relaxed); }

void stop_recording(const std::exception& error) {
  g_failed.store(true);
  if (g_level.exchange(0) == 0) return;
  LiveText().write_failure("recording stopped", error);
  note_failure(error);
}

void leave(Run& run) {
  if (run.active_calls.fetch_sub(1) != 1 || !run.retired.load()) return;
  if (!run.ended.exchange(true)) guarded([&] { record_remaining(run, true); });
}

namespace {

// Has no call begin in the run any more. A device knows one run at a time: there it waits until no call is running, and
// false where that takes longer than `patience_ns`. g_mutex is held.
bool close_run(Run& run, uint64_t patience_ns) {
  run.closed.store(true);
  const uint64_t deadline = Clock::monotonic_ns() + patience_ns;
  while (run.has_device && run.active_calls.load() != 0) {
    if (Clock::monotonic_ns() >= deadline) {
      run.closed.store(false);
      return false;
    }
    usleep(kPauseUs);
  }
  return true;
}

// Has the last call of a closed run end it. Its memory stays: threads know it, and calls of it may be running, which
// record their ends in it. g_mutex is held.
void retire(Run& run) {
  release_crashes();
  run.active_calls.fetch_add(1);
  run.retired_before = g_retired;
  g_retired = &run;
  g_run.store(nullptr);
  run.retired.store(true);
  leave(run);
}

// Ends the run when the library is unloaded or the process exits. Made after what it needs, so it goes before that.
struct RunEnder {
  ~RunEnder() { finish_run(); }
};

// The level that the settings name, which is in force from now on. g_mutex is held.
uint32_t read_level_locked() {
  uint32_t level = 0;
  try {
    const Config config = load_config(aoti_debug_package);
    level = config.level;
    LiveText live;
    for (const std::string& complaint : config.complaints) live.write("aoti-debug: " + complaint + "\n");
  } catch (const std::exception& error) {
    g_failed.store(true);
    LiveText().write_failure("nothing is recorded", error);
  }
  g_level.store(level);
  control.set_level(level);
  return level;
}

__attribute__((noinline)) uint32_t read_level() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const uint32_t level = g_level.load();
  return level != kLevelUnread ? level : read_level_locked();
}

// Makes the control page, or puts the settings in force that it brings.
void look_at_control() {
  drain_prints();
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_over) return;
  control.open();
  watch_forks();
  if (!control.has_request()) return;
  Run* run = g_run.load();
  if (run != nullptr && run->captured.load()) return control.delay(DELAY_CAPTURED);
  const uint64_t patience_ns = control.is_new() ? kPatienceNs : 0;
  if (run != nullptr && !close_run(*run, patience_ns)) return control.delay(DELAY_CALLS);
  control.accept();
  if (run == nullptr) {
    read_level_locked();
    return;
  }
  if (read_level_locked() == LEVEL_OFF && run->active_calls.load() != 0) {
    run->note(NOTE_RECORDING_STOPPED, "the recording was ended while calls were running, which then went on", false);
  }
  retire(*run);
}

Run* start_run() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (Run* run = g_run.load(); run != nullptr || g_over) return run;
  if (g_level.load() == 0) return nullptr;  // since the caller has looked
  static RunEnder ender;
  static_cast<void>(ender);
  if (!g_thread_key_made) g_thread_key_made = pthread_key_create(&g_thread_key, on_thread_end) == 0;
  watch_forks();
  auto run = std::make_unique<Run>(load_config(aoti_debug_package), aoti_debug_package, g_generation.load());
  try {
    run->start();
    if (!run->is_useful()) {
      g_failed.store(true);
      g_level.store(0);
    }
    if (run->config.backtrace && run->is_useful()) catch_crashes(run->directory.path());
    control.begin_run(run->journal.is_open() ? run->directory.path() : "");
    if (run->journal.is_open()) run->directory.begin();
  } catch (const std::exception&) {
    release_crashes();  // handlers that outlive the run would outlive this library
    throw;
  }
  g_run.store(run.get());
  return run.release();
}

}  // namespace

ThreadState* thread_state(Run* run) {
  if (ThreadState* known = current_thread(); known != nullptr && known->run == run) return known;
  t_thread = run->add_thread(static_cast<uint32_t>(syscall(SYS_gettid)));
  t_generation = run->generation;
  const bool ends_seen = g_thread_key_made && pthread_setspecific(g_thread_key, t_thread) == 0;
  if (ends_seen && run->config.backtrace) add_signal_stack();
  return t_thread;
}

PinnedRun enter_run() {
  for (;;) {
    Run* run = g_run.load(std::memory_order_acquire);
    if (run == nullptr) run = start_run();
    if (run == nullptr || !run->is_useful()) return nullptr;
    run->active_calls.fetch_add(1);
    PinnedRun pinned(run);
    if (!run->closed.load()) return pinned;
    pinned.reset();
    if (g_level.load() == 0) return nullptr;  // who closed the run has failed, and no other run begins
    usleep(kPauseUs);
  }
}

}  // namespace aoti_debug

using namespace aoti_debug;

uint32_t aoti_debug_level(void) {
  const uint32_t level = g_level.load(std::memory_order_relaxed);
  return __builtin_expect(level == kLevelUnread, 0) ? read_level() : level;
}

uint32_t aoti_debug_level_of_call(uint32_t kind) {
  if (__builtin_expect(!control.is_tried() || control.has_request(), 0)) {
    const ThreadState* thread = current_thread();
    const bool is_within_call = thread != nullptr && thread->call != nullptr;  // which may be waited for
    if (!is_within_call) guarded([] { look_at_control(); });
  }
  if (kind == AOTI_DEBUG_CALL_MODEL) control.count_call();
  return aoti_debug_level();
}

void aoti_debug_containers(int32_t change) {
  if (change > 0 && !control.is_tried()) guarded([] { look_at_control(); });
  if (g_containers.fetch_add(change) + change != 0) return;
  guarded([] { drain_prints(); });
  guarded([] { end_run(); });  // a library whose models are gone may stay loaded
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_containers.load() != 0) return;
  control.close();
  if (g_run.load() == nullptr && g_failed.exchange(false)) g_level.store(kLevelUnread);  // the next model is recorded
}

uint32_t aoti_debug_end_run(void) {
  bool ended = false;
  guarded([] { drain_prints(); });
  guarded([&] { ended = end_run(); });
  if (ended) g_level.store(kLevelUnread);
  return ended ? 1 : 0;
}
