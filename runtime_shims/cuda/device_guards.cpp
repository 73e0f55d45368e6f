// Guards around buffers in device memory (device.h).
#include "stream_state.h"

namespace aoti_debug::device {

using namespace aoti_debug::cuda;

bool fill_guarded(void* stream, const GuardedMemory& memory, uint8_t poison) {
  const auto body = [&](CUstream on, StreamState&) { return state().guards.fill(on, memory, poison); };
  return on_stream(stream, body, false);
}

bool check_guards(void* stream, const GuardedLaunch& launch, const GuardedMemory* memories, uint32_t count) {
  const auto body = [&](CUstream on, StreamState& mine) {
    return state().guards.check(on, &mine.guards, launch, memories, count);
  };
  return on_stream(stream, body, false);
}

int take_damage(void* stream, GuardDamage* damages, int capacity, bool wait) {
  const WithContext own(context_of(static_cast<CUstream>(stream)));
  if (wait && !synchronize(static_cast<CUstream>(stream))) return -1;
  const auto body = [&](CUstream, StreamState& mine) {
    if (mine.guards == nullptr) return 0;
    const int taken = mine.guards->take(damages, capacity);
    if (wait && taken < capacity) mine.guards->owes = false;
    return taken;
  };
  return on_stream(stream, body, 0);
}

}  // namespace aoti_debug::device
