// The functions that generated code calls for a call of the model and for its launches (aoti_debug.h); the others:
// run_life.cpp.
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "aoti_debug.h"
#include "device/device.h"
#include "launches/call_breadcrumbs.h"
#include "launches/deferral.h"
#include "launches/flight_recorder_inputs.h"
#include "launches/inspection.h"
#include "launches/inspector.h"
#include "launches/jitter.h"
#include "launches/launch_guards.h"
#include "launches/launch_name.h"
#include "launches/launch_record.h"
#include "launches/replay_statistics.h"
#include "launches/side_streams.h"
#include "launches/substitute.h"
#include "launches/watch_launch.h"
#include "run/configuration.h"
#include "run/control.h"
#include "run/run.h"
#include "run/thread_state.h"
#include "run_life.h"

namespace aoti_debug {
namespace {

// Has the calling thread run no longer the call, but what is around it. The files of its tensors refer to it until
// then.
struct LeaveCall {
  void operator()(CallState* call) const {
    Run* const run = call->run;
    if (run->store != nullptr) run->store->wait(&call->saves, &call->thread->journal);
    call->thread->call = call->outer;
    leave(*run);
  }
};
using ActiveCall = std::unique_ptr<CallState, LeaveCall>;

ActiveCall enter_call(PinnedRun run, ThreadState* thread) {
  CallState* call = &thread->outermost;
  if (thread->call != nullptr) {
    if (thread->call->next == nullptr) thread->call->next = std::make_unique<CallState>();
    call = thread->call->next.get();
  }
  static_cast<CallFields&>(*call) = CallFields{};
  thread->changes_stream = false;
  call->run = thread->run;
  call->thread = thread;
  call->outer = thread->call;
  thread->call = call;
  static_cast<void>(run.release());  // LeaveCall leaves it
  return ActiveCall(call);
}

// The level in force in a call. A graph that captures it can measure tensors, but not save them.
uint8_t level_of(const CallState& call) {
  const uint32_t level = call.run->config.level;
  const bool applies = !call.capturing || (call.captured != nullptr && measures_tensors(level));
  return static_cast<uint8_t>(applies ? level : uint32_t{LEVEL_NAMES});
}

// Whether the call is summarised; of one that a graph captures, whether its replays may be.
bool wants_summaries(const CallState& call) {
  if (call.kind != AOTI_DEBUG_CALL_MODEL) return false;
  const Summaries& summaries = call.run->summaries;
  return call.capturing ? call.captured != nullptr && summaries.is_open() : summaries.wants(call.call);
}

// Whether launches of the call are recorded and named on a device, and nothing else is done with them.
bool names_only(const CallState& call) {
  const Run& run = *call.run;
  const bool is_plain = call.level == LEVEL_NAMES && run.config.level == LEVEL_NAMES && run.has_device;
  const bool is_looked_at = call.summarised || call.watching || call.flight || run.config.inspector != nullptr;
  const bool is_changed = call.substituting || call.guards != nullptr || run.config.jitter.is_on;
  return is_plain && !is_looked_at && !is_changed && call.queue == nullptr && run.store == nullptr;
}

// What becomes of the tensors of a call that is captured.
std::string capture_text(const CallState& call) {
  const std::string begin = "a CUDA graph is being captured: ";
  if (call.run->config.level == LEVEL_SAVE) return begin + "tensors are not saved";
  const char* const what = call.run->config.level == LEVEL_HASH ? "hashes" : "statistics";
  if (call.level == LEVEL_NAMES) return begin + "it keeps no " + what + " of tensors";
  return begin + "the " + what +
         " of its last replay are recorded when the run ends, those of earlier replays are not kept";
}

void begin_call(AotiDebugCall* storage, uint32_t kind, const void* model, void* stream) {
  ThreadState* thread = this_thread_state();
  PinnedRun pinned;
  if (thread != nullptr && thread->call != nullptr) {  // a call within a call is of the same run
    thread->run->active_calls.fetch_add(1);
    pinned.reset(thread->run);
  } else {
    pinned = enter_run();
    if (pinned == nullptr) return;
    thread = thread_state(pinned.get());
  }
  Run* const run = pinned.get();
  ActiveCall call = enter_call(std::move(pinned), thread);
  call->model = model;
  call->stream = stream;
  call->kind = kind == AOTI_DEBUG_CALL_CONSTANT ? AOTI_DEBUG_CALL_CONSTANT : AOTI_DEBUG_CALL_MODEL;
  call->call = run->calls[call->kind].fetch_add(1);
  const bool capturing = call->capturing = run->has_device && device::is_capturing(stream);
  if (capturing) run->captured.store(true);
  if (run->has_device) begin_breadcrumbs(*call);
  call->level = level_of(*call);
  call->summarised = wants_summaries(*call);
  if (capturing && call->summarised) {
    call->kept_replays = run->captured_statistics.replays_to_keep(run->selected_sites());
  }
  call->inspecting =
      call->level == LEVEL_SAVE ? run->store != nullptr : measures_tensors(call->level) || run->config.print;
  call->inspecting |= run->config.inspector != nullptr;
  call->substituting = run->substitutions != nullptr && !capturing;
  call->inspecting |= call->summarised;
  call->watching = run->watchpoints != nullptr && (!capturing || call->captured != nullptr);
  if (run->has_device) {
    if (!capturing && (call->level != LEVEL_NAMES || call->watching || call->summarised))
      call->queue = &run->stats_queue(stream, thread->id);
  }
  if (run->config.guards && !capturing) call->guards = std::make_shared<GuardedBuffers>(run->config.poison);
  call->may_defer = may_defer(*call);
  call->joins = may_join(*call);
  if (run->config.flight != 0 && !capturing) {
    run->open_flight();
    call->flight = run->flight.is_open();
  }
  call->names_only = names_only(*call);
  call->selects_all = run->selects_all();
  if (run->has_device) record_clock(*call);
  record_call_begin(*call, capturing, run->journal.now_ns());
  if (capturing && run->config.level != LEVEL_NAMES && run->notices.is_first(Notice::kCapture)) {
    run->note(NOTE_CAPTURING, capture_text(*call), true);
  }
  storage->opaque[0] = reinterpret_cast<uintptr_t>(call.release());
  storage->opaque[1] = run->generation;
}

void end_call(ActiveCall call, bool failed) {
  Run* run = call->run;
  ThreadState* thread = call->thread;
  leave_stream(*call);  // an exception may have left it in force
  for_each_stream(*call, [](CallState& each) {
    if (each.queue != nullptr && aoti_debug_level() == 0) each.queue->leave("not read: the recording has stopped");
    if (each.queue != nullptr) each.queue->settle(false);  // who called the model may change its tensors
    end_breadcrumbs(each);
  });
  char text[256] = "";
  const int32_t error = run->has_device ? device::pending_error(call->stream, text, sizeof(text)) : 0;
  if (error != 0 && !call->fault_seen) record_fault(*call, nullptr, FAULT_CUDA, error, text);
  if (failed && error == 0 && !call->fault_seen && run->stopped() == nullptr) {
    record_fault(*call, nullptr, FAULT_EXCEPTION, -1, "an exception left the model outside any launch");
  }
  if (call->guards != nullptr) finish_guards(*call);
  for_each_stream(*call, [](CallState& each) {
    show_measured(each, each.level != LEVEL_NAMES || each.summarised);  // what watchpoints asked for may come later
  });
  if (call->summarised) run->summaries.flush();
  if (run->store != nullptr) run->store->wait(&call->saves, &thread->journal);
  record_call_end(*call, failed, run->journal.now_ns());
  if (run->has_device) record_clock(*call);
  run->note_stops();
  thread->flush_text(run->journal.now_ns());
}

LaunchState* launch_in(AotiDebugLaunch* storage) { return std::launder(reinterpret_cast<LaunchState*>(storage)); }

// Runs `work` on a launch. Where it throws, what waits is enqueued before anything changes its tensors: no later launch
// of the call is seen.
template <class Work>
void guarded_launch(const Work& work) {
  guarded([&] {
    try {
      work();
    } catch (const std::exception&) {
      if (const ThreadState* thread = this_thread_state(); thread != nullptr && thread->call != nullptr) {
        for_each_stream(*thread->call, [](CallState& each) {
          if (each.queue != nullptr) each.queue->settle(false);
        });
      }
      throw;
    }
  });
}

// What is done before a launch that is more than named. `n_recorded`: how many of its values are recorded.
__attribute__((noinline)) AotiDebugLaunchAction look_before(LaunchState* launch, const AotiDebugValue* values,
                                                            uint32_t n_values, uint32_t n_recorded) {
  CallState& call = *launch->call;
  Run* run = call.run;
  if (call.flight) record_flight(*launch, values, n_values);
  if (call.watching) watch(*launch, values, PHASE_BEFORE);
  const bool inspected = launch->selected && run->config.inspector != nullptr;
  if (inspected) call_inspector(*launch, values, PHASE_BEFORE);
  if (launch->selected) inspect(*launch, values, PHASE_BEFORE, true, launch->begin_ns);
  settle_before(*launch, n_recorded);
  if (launch->substitution == nullptr) return AOTI_DEBUG_RUN;
  const AotiDebugLaunchAction action = act_before(*launch, values);
  if (action == AOTI_DEBUG_STOP) {
    call.innermost = launch->outer;
    leave_stream(call);
  }
  if (action == AOTI_DEBUG_SKIP) launch->grid_seen = true;
  return action;
}

AotiDebugLaunchAction begin_launch(AotiDebugLaunch* storage, const AotiDebugSite* site, const AotiDebugValue* values,
                                   uint32_t n_values, const void* return_address) {
  ThreadState* thread = this_thread_state();
  if (thread == nullptr || thread->call == nullptr) return AOTI_DEBUG_RUN;
  CallState& call = *thread->call;
  Run* run = call.run;
  thread->return_address = return_address;
  LaunchState* launch = launch_in(storage);
  launch->call = &call;
  launch->site = site;
  launch->on_side = std::exchange(thread->changes_stream, false) && enter_stream(call, thread->next_stream);
  launch->outer = call.innermost;
  launch->launch = call.launches++;
  if (!call.names_only && run->config.jitter.is_on) delay_before(run->config.jitter, call.call, launch->launch);
  launch->sequence = run->sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  launch->generation = run->generation;
  launch->selected = call.inspecting && (call.selects_all || run->selects(*site, call.kind, call.call, launch->launch));
  launch->grid_seen = false;
  launch->substitution = call.substituting ? run->substitutions->find(call.id(launch->launch)) : nullptr;
  call.innermost = launch;
  if (!run->closed.load(std::memory_order_relaxed)) control.count_launch(launch->sequence, site->id);
  launch->begin_ns = run->journal.now_ns();
  const uint32_t n_recorded = record_launch_begin(*launch, values, n_values);
  if (!call.names_only) return look_before(launch, values, n_values, n_recorded);
  if (launch->selected) name_launch(*launch, PHASE_BEFORE, launch->begin_ns);
  return AOTI_DEBUG_RUN;
}

void report_fault(const LaunchState& launch, int32_t status, const char* message) {
  CallState& call = *launch.call;
  call.fault_seen = true;
  const char* what = message != nullptr ? message : shim_error_text();
  record_fault(call, &launch, message != nullptr ? FAULT_EXCEPTION : FAULT_SHIM, status, what);
  char text[256] = "";
  const int32_t error = call.run->has_device ? device::pending_error(call.stream, text, sizeof(text)) : 0;
  if (error != 0) record_fault(call, &launch, FAULT_CUDA, error, text);
  if (!call.run->config.print) return;
  call.run->headlines.submit(&call.thread->headlines);
  const LinePrefix prefix(call.id(launch.launch), call.thread->shown_id());
  print_fault(call.thread->text, prefix, launch.site->kernel, what);
}

// What is done after a launch that is more than named, or that has failed.
__attribute__((noinline)) void look_after(const LaunchState& launch, const AotiDebugValue* values, int32_t status,
                                          const char* message, uint64_t now_ns) {
  CallState& call = *launch.call;
  if (call.guards != nullptr) check_guards(launch);
  if (status != 0) report_fault(launch, status, message);
  if (call.watching && status == 0) watch(launch, values, PHASE_AFTER);
  const bool inspected = launch.selected && status == 0 && call.run->config.inspector != nullptr;
  if (inspected) call_inspector(launch, values, PHASE_AFTER);
  if (launch.selected) inspect(launch, values, PHASE_AFTER, status == 0, now_ns);
  if (call.queue != nullptr && !call.deferring) call.queue->settle(false);
  if (call.watching && (call.joins || !call.deferring)) show_measured(call, false);
  if (launch.substitution != nullptr && status == 0) replace_results(launch, values);
  if (status != 0) {
    show_measured(call, false);
    call.thread->flush_text(now_ns);
  }
}

void end_launch(LaunchState* launch, const AotiDebugValue* values, int32_t status, const char* message) {
  CallState& call = *launch->call;
  Run* run = call.run;
  call.innermost = launch->outer;
  const uint64_t now_ns = run->journal.now_ns();
  const bool stopped = aoti_debug_level() == 0;  // then generated code says no grids, and no later launch, any more
  launch->grid_seen |= stopped;
  AfterLaunch due{false, true};
  if (call.crumbs && status == 0) {
    const bool is_paced = call.paced && call.own_paced;
    due =
        is_paced ? run->crumbs.due(call.stream_slot, call.own_slot, now_ns, launch->sequence) : AfterLaunch{true, true};
  }
  const bool crumb = due.crumb;
  call.deferring = status == 0 && !stopped && (call.joins || (call.may_defer && !due.statistics));
  record_launch_end(*launch, values, status, crumb, now_ns);
  call.last_sequence = launch->sequence;
  if (crumb) run->crumbs.write(call.stream, call.stream_slot, launch->sequence);
  if (!call.names_only || status != 0) {
    look_after(*launch, values, status, message, now_ns);
  } else if (launch->selected) {
    name_launch(*launch, PHASE_AFTER, now_ns);
  }
  if (run->journal.has_stopped() || run->store != nullptr) run->note_stops();
  if (launch->on_side) leave_stream(call);
}

// The call that storage stands for; nullptr where nothing is recorded, or where it began before a fork.
CallState* call_of(const AotiDebugCall* storage) {
  if (storage->opaque[0] == 0 || storage->opaque[1] != generation()) return nullptr;
  return reinterpret_cast<CallState*>(static_cast<uintptr_t>(storage->opaque[0]));
}

LaunchState* launch_of(AotiDebugLaunch* storage) {
  LaunchState* launch = launch_in(storage);
  if (launch->call == nullptr || launch->generation != generation()) return nullptr;
  return launch;
}

}  // namespace
}  // namespace aoti_debug

using namespace aoti_debug;

void aoti_debug_call_begin(AotiDebugCall* call, uint32_t kind, const void* model, void* stream) {
  call->opaque[0] = 0;
  guarded([&] { begin_call(call, kind, model, stream); });
}

void aoti_debug_call_end(AotiDebugCall* call, uint32_t failed) {
  if (CallState* state = call_of(call)) guarded([&] { end_call(ActiveCall(state), failed != 0); });
}

uint32_t aoti_debug_launch_begin(AotiDebugLaunch* launch, const AotiDebugSite* site, const AotiDebugValue* values,
                                 uint32_t n_values) {
  new (launch) LaunchState{};
  const void* return_address = __builtin_return_address(0);
  AotiDebugLaunchAction action = AOTI_DEBUG_RUN;
  guarded_launch([&] { action = begin_launch(launch, site, values, n_values, return_address); });
  return action;
}

void aoti_debug_launch_end(AotiDebugLaunch* launch, const AotiDebugValue* values, int32_t status, const char* message) {
  if (LaunchState* state = launch_of(launch)) {
    state->call->thread->return_address = __builtin_return_address(0);
    guarded_launch([&] { end_launch(state, values, status, message); });
  }
}

void aoti_debug_stream(void* stream) {
  ThreadState* thread = this_thread_state();
  if (thread == nullptr || thread->call == nullptr) return;
  thread->next_stream = stream;
  thread->changes_stream = true;
}

void aoti_debug_grid(const AotiDebugKernel* kernel, const uint32_t grid[3], uint32_t num_warps, uint32_t shared_bytes,
                     void* const* args) {
  ThreadState* thread = this_thread_state();
  if (thread == nullptr || thread->call == nullptr || thread->call->innermost == nullptr) return;
  LaunchState& launch = *thread->call->innermost;
  launch.grid_seen = true;
  guarded([&] { record_grid(launch, *kernel, grid, num_warps, shared_bytes, args); });
}

uint32_t aoti_debug_allocate(uint32_t allocation, const char* name, int64_t ndim, const int64_t* sizes,
                             const int64_t* strides, int32_t dtype, int32_t device_type, int32_t device_index,
                             void* tensor) {
  ThreadState* thread = this_thread_state();
  if (thread == nullptr || thread->call == nullptr) return 0;
  const BufferRequest request{allocation, ndim, sizes, strides, dtype, device_type, device_index};
  bool made = false;
  guarded([&] { made = allocate_guarded(*thread->call, request, name, static_cast<void**>(tensor)); });
  return made ? 1 : 0;
}

const char* aoti_debug_stopped(void) {
  if (!Run::any_stopped()) return nullptr;
  const ThreadState* thread = this_thread_state();
  if (thread == nullptr || thread->call == nullptr) return nullptr;
  return thread->run->stopped();
}

void aoti_debug_weights(const char* what, uint32_t inactive, uint32_t all) {
  if (aoti_debug_level() == 0) return;
  guarded([&] {
    const PinnedRun run = enter_run();
    if (run == nullptr) return;
    std::string text = std::string("weights: ") + what;
    text += inactive != 0 ? ", on the inactive side" : ", on the active side";
    if (all == 0) text += ", some of them";
    run->note(NOTE_WEIGHTS, text, false);
  });
}

void aoti_debug_loop_enter(void) {
  ThreadState* thread = this_thread_state();
  if (thread == nullptr || thread->call == nullptr) return;
  CallState& call = *thread->call;
  if (call.n_loops < CallState::kLoops) call.loops[call.n_loops] = 0;
  ++call.n_loops;
}

void aoti_debug_loop_next(void) {
  ThreadState* thread = this_thread_state();
  if (thread == nullptr || thread->call == nullptr) return;
  CallState& call = *thread->call;
  if (call.n_loops != 0 && call.n_loops <= CallState::kLoops) ++call.loops[call.n_loops - 1];
}

void aoti_debug_loop_leave(void) {
  ThreadState* thread = this_thread_state();
  if (thread == nullptr || thread->call == nullptr) return;
  CallState& call = *thread->call;
  if (call.n_loops == 0) return;
  --call.n_loops;
  if (call.n_loops < CallState::kLoops) call.loops[call.n_loops] = 0;
}
