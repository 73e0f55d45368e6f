// What a thread holds while it runs calls of the package.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aoti_debug.h"
#include "guards/guarded_buffers.h"
#include "journal/journal.h"
#include "journal/launch_id.h"
#include "run.h"
#include "statistics/statistics_memo.h"
#include "text/headlines.h"
#include "text/launch_text.h"

namespace aoti_debug {

struct CallState;
struct ThreadState;

// A running launch: what AotiDebugLaunch holds.
struct LaunchState {
  CallState* call;  // nullptr: nothing is recorded of this launch
  const AotiDebugSite* site;
  LaunchState* outer;  // in the same call
  uint64_t begin_ns;
  uint32_t launch;
  uint32_t sequence;
  uint32_t generation;         // Run::generation
  Substitution* substitution;  // nullptr: there is none
  bool selected;               // printed, measured or saved
  bool grid_seen;
  bool on_side;  // it runs on another stream than its call
};
static_assert(sizeof(LaunchState) <= sizeof(AotiDebugLaunch), "");

// What a call holds of one of its streams.
struct Lane {
  void* stream = nullptr;
  StatsQueue* queue = nullptr;  // levels 1, 2 and hash, and summaries, on a device
  uint32_t last_sequence = 0;
  uint16_t stream_slot = 0;
  bool crumbs = false;
  bool paced = false;  // the call has claimed the pace of the slot
};

// What begins anew with every call. It is the lane of its own stream, and while a launch runs on a side stream that of
// the side stream (side_streams.h).
struct CallFields : Lane {
  static constexpr uint32_t kLoops = Headline::kLoops;

  Run* run = nullptr;
  ThreadState* thread = nullptr;
  CallState* outer = nullptr;
  LaunchState* innermost = nullptr;
  const void* model = nullptr;
  void* captured = nullptr;  // what a CUDA graph holds of this call, as the device knows it; nullptr: nothing
  std::vector<Lane> others;  // of the other streams
  size_t side = 0;           // 0: its own stream is in force; else one of the others, counted from 1
  std::shared_ptr<GuardedBuffers> guards;  // nullptr: there are none
  uint32_t call = 0;
  uint32_t launches = 0;
  uint32_t kept_replays = 1;  // where a graph captures the call: how many of the last ones keep what is summarised
  uint32_t n_loops = 0;
  uint32_t loops[kLoops] = {};
  uint16_t own_slot = Crumbs::kNoSlot;  // of its own stream, whichever lane is in force
  bool own_paced = false;               // likewise, or it has no slot
  uint8_t kind = AOTI_DEBUG_CALL_MODEL;
  uint8_t level = 0;
  bool names_only = false;  // its launches are recorded and named, and nothing else is done with them
  bool selects_all = false;
  bool flight = false;
  bool summarised = false;
  bool inspecting = false;  // something is printed, measured or saved
  bool watching = false;
  bool substituting = false;
  bool capturing = false;  // a CUDA graph captures this call: nothing of it runs yet
  bool fault_seen = false;
  bool may_defer = false;  // statistics may wait while launches come in a burst
  bool joins = false;      // what is hashed after a launch waits for what is hashed before the next one
  bool deferring = false;  // statistics wait now, for one of the two
};

// A running call of run_impl or _const_run_impl.
struct CallState : CallFields {
  std::unique_ptr<CallState> next;  // storage of a call within this one
  SaveBatch saves;                  // none are left between calls

  LaunchId id(uint32_t launch) const { return {call, launch, kind}; }
  LoopCounts loop_counts() const { return {loops, n_loops < kLoops ? n_loops : kLoops}; }
};

// The calling thread's state; nullptr where it runs nothing of this package's run.
ThreadState* this_thread_state();

// Whether the callee writes what the slot shows, so that it is recorded after the launch.
inline bool is_result(const AotiDebugSlot& slot) {
  return slot.form == AOTI_DEBUG_OUTPUT_SLOT ||
         (slot.form == AOTI_DEBUG_SCALAR_REF && slot.role >= AOTI_DEBUG_ROLE_OUT) ||
         (slot.form == AOTI_DEBUG_LIST && slot.role == AOTI_DEBUG_ROLE_OUT);
}

// What a thread keeps of a site for the next launch.
struct SiteMemo {
  std::unique_ptr<uint32_t[]> layouts;  // of each slot, where the journal has its layout
  bool has_results = false;
};

struct ThreadState {
  ThreadState(Run* run, uint32_t id) : run(run), id(id), journal(&run->journal, id) {}

  Run* run;
  uint32_t id;  // the operating system's
  JournalWriter journal;
  CallState* call = nullptr;  // innermost
  CallState outermost;
  std::vector<Headline> headlines;  // lines that are yet to be written
  std::string text;                 // lines that come after them
  uint64_t flushed_ns = 0;
  LaunchId last_hit = kNoLaunch;         // of a watchpoint
  bool saves_hit = false;                // the tensors of that launch are saved
  void* next_stream = nullptr;           // of the next launch, where it is not its call's
  bool changes_stream = false;           // it is not
  const void* return_address = nullptr;  // of generated code, from the function of ours that it called last
  StatisticsMemo statistics;
  std::vector<SlotValue> values;          // scratch, an entry a slot
  std::vector<TensorMeta> tensors;        // scratch, an entry a slot
  const LaunchState* recorded = nullptr;  // the launch whose every slot, as it began, both of them hold
  std::vector<SiteMemo> memos;            // of each site

  SiteMemo& memo_of(const AotiDebugSite& site) {
    if (__builtin_expect(site.id >= memos.size() || memos[site.id].layouts == nullptr, 0)) prepare(site);
    return memos[site.id];
  }

  // 0 while one thread runs the package: lines then carry no thread.
  uint32_t shown_id() const { return run->has_several_threads() ? id : 0; }

  void flush_text(uint64_t now_ns) {
    flushed_ns = now_ns;
    run->headlines.submit(&headlines);
    if (text.empty()) return;
    run->headlines.drain();
    run->live.write(text);
    text.clear();
  }

 private:
  void prepare(const AotiDebugSite& site) {
    if (site.id >= memos.size()) memos.resize(site.id + 1);
    if (values.size() < site.n_slots) values.resize(site.n_slots);
    if (tensors.size() < site.n_slots) tensors.resize(site.n_slots);
    memos[site.id].has_results = std::any_of(site.slots, site.slots + site.n_slots, is_result);
    memos[site.id].layouts = std::make_unique<uint32_t[]>(site.n_slots);  // last: it says that there is room for it
  }
};

}  // namespace aoti_debug
