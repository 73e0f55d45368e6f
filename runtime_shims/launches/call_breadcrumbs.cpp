#include "call_breadcrumbs.h"

#include <utility>

#include "run/run.h"

namespace aoti_debug {

namespace {

void note_capture_without_breadcrumbs(Run& run) {
  if (!run.notices.is_first(Notice::kCaptureWithoutCrumbs)) return;
  const bool too_many = run.crumbs.is_open();
  std::string text = "no breadcrumbs";
  if (too_many && run.config.level == LEVEL_HASH) text += ", no hashes of tensors";
  if (too_many && run.config.level == LEVEL_VALUES) text += ", no statistics of tensors";
  if (run.watchpoints != nullptr) text += ", no watchpoints";
  if (run.summaries.is_open()) text += ", no summaries";
  text += too_many ? " in further CUDA graphs: too many calls of this run were captured"
                   : " in a CUDA graph: the model was not called once, outside of a capture, before";
  run.note(NOTE_CRUMBS_OFF, text, true);
}

// Says, once, what watchpoints cannot do in a call that is captured.
void note_captured_watchpoints(const CallState& call) {
  Run& run = *call.run;
  if (run.watchpoints == nullptr) return;
  if (call.captured == nullptr) {
    if (!run.notices.is_first(Notice::kCaptureWithoutWatches)) return;
    return run.note(NOTE_CAPTURING, "no watchpoints in a CUDA graph: the device could not add to it", true);
  }
  const bool acts = run.watchpoints->does(WATCH_SAVE) || run.watchpoints->does(WATCH_STACK);
  if (!acts || !run.notices.is_first(Notice::kIdleWatchActions)) return;
  run.note(NOTE_CAPTURING, "a hit in a CUDA graph saves no tensors and writes no stack", true);
}

void note_captured_summaries(const CallState& call) {
  Run& run = *call.run;
  if (call.captured != nullptr || !run.summaries.is_open() || !run.notices.is_first(Notice::kTooManySummarised)) return;
  run.note(NOTE_CAPTURING, "no summaries of replays of a CUDA graph: the device could not add to it", true);
}

}  // namespace

void begin_breadcrumbs(CallState& call) {
  Run& run = *call.run;
  if (!call.capturing) run.open_crumbs();
  if (run.crumbs.is_open()) {
    call.stream_slot =
        call.capturing ? run.crumbs.captured_slot(call.stream) : run.crumbs.slot(call.stream, call.model);
    call.crumbs = call.stream_slot != Crumbs::kNoSlot;
    call.own_slot = call.stream_slot;
    call.paced = call.crumbs && run.crumbs.claim(call.stream_slot);
    call.own_paced = call.paced || !call.crumbs;
  }
  if (!call.capturing) return;
  if (call.crumbs) {
    const uint32_t before = run.sequence.load(std::memory_order_relaxed);
    call.captured = run.crumbs.begin_captured(call.stream, call.stream_slot, before);
    if (call.captured == nullptr) run.crumbs.write(call.stream, call.stream_slot, before);
    note_captured_watchpoints(call);
    note_captured_summaries(call);
  } else {
    call.stream_slot = Crumbs::kNoSlot;
    note_capture_without_breadcrumbs(run);
  }
}

void end_breadcrumbs(CallState& call) {
  if (!call.crumbs) return;
  Run& run = *call.run;
  if (call.last_sequence != 0 && (!call.paced || run.crumbs.take_last(call.stream_slot))) {
    run.crumbs.write(call.stream, call.stream_slot, call.last_sequence);
  }
  if (std::exchange(call.paced, false)) run.crumbs.give_back(call.stream_slot);
  if (call.capturing) run.crumbs.complete(call.stream_slot, run.sequence.load(std::memory_order_relaxed));
}

}  // namespace aoti_debug
