#include "launch_guards.h"

#include <string.h>

#include <string>
#include <vector>

#include "device/device.h"
#include "side_streams.h"

namespace aoti_debug {
namespace {

constexpr uint32_t kMaxRecords = 1024;  // of a run

void record_damage(CallState& call, const GuardDamage& damage) {
  Run* run = call.run;
  const uint32_t number = run->damages.fetch_add(1);
  if (number == kMaxRecords) run->note(NOTE_GUARDS, "further damage to guards is not recorded", true);
  if (number >= kMaxRecords) return;
  JournalWriter& journal = call.thread->journal;
  uint8_t* to = journal.start(sizeof(damage));
  if (to == nullptr) return;
  memcpy(to, &damage, sizeof(damage));
  journal.finish(RECORD_GUARD, 0, run->journal.now_ns());
}

void take_damage(CallState& call, bool wait) {
  if (!call.run->has_device) return;
  GuardDamage damages[16];
  for (;;) {
    const int taken = device::take_damage(call.stream, damages, 16, wait);
    for (int i = 0; i < taken; ++i) record_damage(call, damages[i]);
    if (taken < 0 && wait) {
      wait = false;
    } else if (taken < 16) {
      return;
    }
  }
}

}  // namespace

bool allocate_guarded(CallState& call, const BufferRequest& request, const char* name, void** tensor) {
  if (call.guards == nullptr || request.is_empty()) return false;
  const std::string reason = call.guards->allocate(request, call.stream, tensor);
  if (reason.empty()) return true;
  if (call.run->is_newly_unguarded(request.allocation)) {
    call.run->note(NOTE_GUARDS, std::string("no guards around ") + name + ": " + reason, false);
  }
  return false;
}

void check_guards(const LaunchState& launch) {
  CallState& call = *launch.call;
  std::vector<GuardDamage> damages;
  const GuardedLaunch which{call.call, launch.launch, call.kind};
  if (!call.guards->check(call.stream, which, &damages) && !call.fault_seen &&
      call.run->notices.is_first(Notice::kGuardsNotCompared)) {
    call.run->note(NOTE_GUARDS, "guards in device memory were not compared after every launch", true);
  }
  for (const GuardDamage& damage : damages) record_damage(call, damage);
  take_damage(call, false);
}

void finish_guards(CallState& call) {
  for_each_stream(call, [](CallState& each) { take_damage(each, true); });
  call.guards->end();
  call.guards.reset();
}

}  // namespace aoti_debug
