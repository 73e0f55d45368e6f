// One run: everything that the calls of this package share in this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "aoti_debug.h"
#include "configuration.h"
#include "crash/breadcrumbs.h"
#include "crash/flight_recorder.h"
#include "journal/journal.h"
#include "machine/periodic_thread.h"
#include "notices.h"
#include "run_directory.h"
#include "saving/tensor_store.h"
#include "statistics/captured_statistics.h"
#include "statistics/statistics_queue.h"
#include "statistics/summaries.h"
#include "substitutions.h"
#include "text/headlines.h"
#include "text/live_text.h"
#include "watch/captured_watches.h"
#include "watch/watchpoints.h"

namespace aoti_debug {

struct ThreadState;

class Run {
 public:
  Run(Config config, const AotiDebugPackage& package, uint32_t generation);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Creates the run directory and what is in it. What fails is noted; the rest goes on.
  void start();

  // The package is unloaded, or the process exits in order. `idle`: no thread is within a call. First what there is to
  // say of the whole run, then its end. `failed`: something of ours did, and nothing was recorded after it.
  void note_results(bool idle);
  void finish(bool idle, bool failed);

  ThreadState* add_thread(uint32_t id);
  void forget_thread(const ThreadState* thread);
  bool has_several_threads() const { return threads_seen_.load(std::memory_order_relaxed) > 1; }

  // Notes in the journal; `tell` adds a line on standard error.
  void note(NoteCode code, const std::string& text, bool tell);

  // Appends a record that no launch's records push out of a full journal, as long as there are few of them.
  void record(RecordType type, uint16_t flags, const void* fields, size_t bytes, const void* tail, size_t tail_bytes);

  // What a print of a launch has printed.
  void record_print(const LaunchId& id, const std::string& text);

  // How often a watchpoint was looked at and hit by now.
  void record_watch_count(uint32_t watch);

  // Notes what has stopped since the last time: the journal, or the saving of tensors.
  void note_stops();

  // Whether every launch is printed, measured and saved; journal and crumbs cover every launch.
  bool selects_all() const { return selects_all_; }

  // Whether one is.
  bool selects(const AotiDebugSite& site, uint8_t kind, uint32_t call, uint32_t launch) const;

  // The launches that follow are not to run.
  void stop(const std::string& why);
  // Whether that was said of any run of this library.
  static bool any_stopped() { return any_stopped_.load(std::memory_order_relaxed); }
  // Why; nullptr while they may run.
  const char* stopped() const { return stopped_.load(std::memory_order_acquire) ? why_stopped_.c_str() : nullptr; }

  // Sets up the breadcrumbs, once; who comes second waits for the first. No stream of this thread is being captured.
  void open_crumbs();

  // Sets up the flight recorder, once. A device must have a context on this thread.
  void open_flight();

  StatsQueue& stats_queue(void* stream, uint32_t thread);

  // The statistics queues of all streams.
  std::vector<StatsQueue*> stats_queues();

  // Whether this is the first time that a buffer got no guards.
  bool is_newly_unguarded(uint32_t allocation);

  // Whether some launches of the package run on other streams than their calls.
  bool has_side_streams() const { return has_side_streams_; }

  // How many launch sites the filters take.
  size_t selected_sites() const;

  // Whether anything is recorded or shown at all.
  bool is_useful() const {
    return journal.is_open() || (config.print && (config.level == LEVEL_VALUES || config.level == LEVEL_NAMES));
  }

  const Config config;
  const AotiDebugPackage& package;
  const uint32_t generation;  // counts the forks before this run
  const bool has_device;
  RunDirectory directory;
  Journal journal;
  Crumbs crumbs;
  Flight flight;
  Summaries summaries;
  LiveText live;
  Headlines headlines{&live};
  WeightsFile weights;                           // that tensors are compared with before they are kept
  std::unique_ptr<TensorStore> store;            // level 1, and for watchpoints that save
  std::unique_ptr<Watchpoints> watchpoints;      // nullptr: there are none
  CapturedStatistics captured_statistics;        // of calls that CUDA graphs capture
  CapturedWatches captured_watches;              // of such calls
  PeriodicThread replay_observer;                // looks at both
  std::unique_ptr<Substitutions> substitutions;  // nullptr: there are none
  std::atomic<uint32_t> sequence{0};
  std::atomic<uint32_t> calls[2] = {};
  std::atomic<uint32_t> active_calls{0};
  std::atomic<bool> closed{false};   // no call begins in it
  std::atomic<bool> retired{false};  // its last call ends it
  std::atomic<bool> ended{false};    // of a retired run: what remained is recorded
  Run* retired_before = nullptr;
  Notices notices;
  std::once_flag crumbs_tried;
  std::once_flag flight_tried;
  std::atomic<bool> captured{false};  // a CUDA graph holds calls of it
  std::atomic<bool> faulted{false};   // a fault was recorded
  std::atomic<uint32_t> damages{0};   // to guards, recorded or not

 private:
  void start_watchpoints();

  // Appends a record: its fields, then a text. `mutex_` is held.
  void append(JournalWriter& writer, RecordType type, uint16_t flags, const void* fields, size_t bytes,
              const void* tail, size_t tail_bytes);

  // Whether a launch failed, or the device is broken.
  bool has_failed() const;

  std::atomic<uint32_t> threads_seen_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> stopped_{false};
  static std::atomic<bool> any_stopped_;
  std::string why_stopped_;        // written once, before stopped_
  std::vector<uint8_t> selected_;  // a site, whether the filter takes it
  bool selects_all_ = false;
  bool has_side_streams_ = false;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<JournalWriter> notes_;
  std::unique_ptr<JournalWriter> prints_;  // apart, so that many prints push no note out of a full journal
  std::vector<std::unique_ptr<ThreadState>> threads_;
  std::set<uint32_t> unguarded_;  // allocations
  std::map<std::pair<void*, uint32_t>, std::unique_ptr<StatsQueue>> queues_;
};

}  // namespace aoti_debug
