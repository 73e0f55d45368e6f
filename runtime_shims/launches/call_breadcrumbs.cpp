#include "call_breadcrumbs.h"

#include "run/run.h"

namespace aoti_debug {

namespace {

void note_capture_without_breadcrumbs(Run& run) {
  if (run.uncrumbed_capture_noted.exchange(true)) return;
  const char* why = run.crumbs.is_open() ? "too many calls of this run were captured"
                                         : "the model was not called once, outside of a capture, before";
  run.note(NOTE_CRUMBS_OFF, std::string("no breadcrumbs in a CUDA graph: ") + why, true);
}

}  // namespace

void begin_breadcrumbs(CallState& call) {
  Run& run = *call.run;
  if (!call.capturing) run.open_crumbs();
  if (run.crumbs.is_open()) {
    call.stream_slot =
        call.capturing ? run.crumbs.captured_slot(call.stream) : run.crumbs.slot(call.stream, call.model);
    call.crumbs = call.stream_slot != Crumbs::kNoSlot;
  }
  if (!call.capturing) return;
  if (call.crumbs) {
    run.crumbs.write(call.stream, call.stream_slot, run.sequence.load(std::memory_order_relaxed));
  } else {
    call.stream_slot = Crumbs::kNoSlot;
    note_capture_without_breadcrumbs(run);
  }
}

void end_breadcrumbs(const CallState& call) {
  if (!call.crumbs) return;
  Run& run = *call.run;
  if (call.last_sequence != 0 && run.crumbs.take_last(call.stream_slot)) {
    run.crumbs.write(call.stream, call.stream_slot, call.last_sequence);
  }
  if (call.capturing) run.crumbs.complete(call.stream_slot, run.sequence.load(std::memory_order_relaxed));
}

}  // namespace aoti_debug
