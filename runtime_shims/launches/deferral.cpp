#include "deferral.h"

#include <algorithm>
#include <string_view>

#include "tensors/readable.h"

namespace aoti_debug {
namespace {

constexpr int64_t kMaxHeldBytes = int64_t{2} << 20;  // of one tensor: a larger one's memory is soon needed

// Whether the callee writes to memory of the arguments that its slots show, or to new memory, and to no other. Others
// may: operators of the user's need not tell what they write.
bool writes_its_arguments_only(const AotiDebugSite& site) {
  constexpr std::string_view kShim = "aoti_torch_cuda_", kOut = "_out";
  const std::string_view kernel = site.kernel;
  if (site.grid != 0) return true;  // generated, or its roles are unknown
  return kernel.substr(0, kShim.size()) == kShim && kernel.size() > kOut.size() &&
         kernel.substr(kernel.size() - kOut.size()) == kOut;
}

// What a launch may write to through one argument.
enum class Writes : uint8_t { kNothing, kTensor, kAnything };

Writes writes_through(const AotiDebugSlot& slot, const SlotValue& value) {
  if (value.tag == VALUE_OPAQUE) return Writes::kAnything;  // a descriptor, or what the shim does not tell
  const bool is_read = slot.role == AOTI_DEBUG_ROLE_IN;
  if (value.tag == VALUE_TENSOR) return is_read ? Writes::kNothing : Writes::kTensor;
  const bool is_address = value.tag == VALUE_NUMBER && value.type == AOTI_DEBUG_ADDRESS;
  return is_address && !(is_tensor_form(slot.form) && is_read) ? Writes::kAnything : Writes::kNothing;
}

// Enqueues the statistics that wait of tensors that the launch may write to. False where it may write to any.
bool settle_written(const LaunchState& launch, uint32_t n_values, StatsQueue& queue) {
  const AotiDebugSite& site = *launch.site;
  if (!writes_its_arguments_only(site) || n_values != site.n_slots) return false;
  const ThreadState& thread = *launch.call->thread;
  for (uint32_t i = 0; i < n_values && queue.has_waiting(); ++i) {
    const Writes writes = writes_through(site.slots[thread.values[i].slot], thread.values[i]);
    if (writes == Writes::kNothing) continue;
    const TensorMeta& meta = thread.tensors[i];
    if (writes == Writes::kAnything || !is_readable(meta)) return false;
    queue.settle_within(meta.data, meta.data + spanned_bytes(view_of(meta)));
  }
  return true;
}

// Whether nothing that is done after a launch needs its statistics at once, or changes what they are of.
bool is_free_to_wait(const CallState& call) {
  const Run& run = *call.run;
  if (call.queue == nullptr || call.guards != nullptr) return false;
  if (run.has_side_streams()) return false;  // what waits would come behind the event that another stream waits for
  if (run.config.inspector != nullptr || run.substitutions != nullptr) return false;
  return !call.watching || !(run.watchpoints->does(WATCH_SAVE) || run.watchpoints->does(WATCH_STACK));
}

}  // namespace

bool may_defer(const CallState& call) { return call.crumbs && is_free_to_wait(call); }

bool may_join(const CallState& call) { return call.level == LEVEL_HASH && is_free_to_wait(call); }

HeldTensor held_for(const CallState& call, Phase phase, device::StatsWanted wanted, const TensorMeta& meta,
                    uint64_t handle) {
  if (!call.deferring) return {};
  if (call.joins) return phase == PHASE_AFTER ? HeldTensor(handle) : HeldTensor();
  if (wanted != device::StatsWanted::kNumbers || meta.storage_bytes > kMaxHeldBytes) return {};
  return HeldTensor(handle);
}

void settle_before(const LaunchState& launch, uint32_t n_values) {
  const CallState& call = *launch.call;
  if (call.queue == nullptr || !call.queue->has_waiting()) return;
  call.queue->settle(call.deferring && !call.joins && settle_written(launch, n_values, *call.queue));
}

}  // namespace aoti_debug
