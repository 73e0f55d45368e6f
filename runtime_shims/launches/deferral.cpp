#include "deferral.h"

#include <algorithm>
#include <string_view>

#include "tensors/readable.h"

namespace aoti_debug {
namespace {

constexpr int64_t kMostHeldBytes = int64_t{2} << 20;  // of one tensor: a larger one's memory is soon needed

// Whether the callee writes to memory of the arguments that its slots show, or to new memory, and to no other. Others
// may: operators of the user's need not tell what they write.
bool writes_its_arguments_only(const AotiDebugSite& site) {
  constexpr std::string_view kShim = "aoti_torch_cuda_", kOut = "_out";
  const std::string_view kernel = site.kernel;
  if (site.grid != 0) return true;  // generated, or its roles are unknown
  return kernel.substr(0, kShim.size()) == kShim && kernel.size() > kOut.size() &&
         kernel.substr(kernel.size() - kOut.size()) == kOut;
}

bool may_write(const AotiDebugSlot& slot, const SlotValue& value, const TensorMeta& meta, StatsQueue& queue) {
  if (value.tag == VALUE_OPAQUE) return true;  // a descriptor, or what the shim does not tell
  if (value.tag == VALUE_NUMBER) {
    return value.type == AOTI_DEBUG_ADDRESS && !(is_tensor_form(slot.form) && slot.role == AOTI_DEBUG_ROLE_IN);
  }
  if (value.tag != VALUE_TENSOR || slot.role == AOTI_DEBUG_ROLE_IN) return false;
  if (!unreadable(meta).empty()) return true;
  return queue.waits_for(meta.data, meta.data + extent_bytes(meta));
}

bool leaves_alone(const LaunchState& launch, uint32_t n_values, StatsQueue& queue) {
  const AotiDebugSite& site = *launch.site;
  if (!writes_its_arguments_only(site) || n_values != site.n_slots) return false;
  const ThreadState& thread = *launch.call->thread;
  for (uint32_t i = 0; i < n_values; ++i) {
    const SlotValue& value = thread.values[i];
    if (may_write(site.slots[value.slot], value, thread.tensors[i], queue)) return false;
  }
  return true;
}

// Whether nothing that is done after a launch needs its statistics at once, or changes what they are of.
bool is_free_to_wait(const CallState& call) {
  const Run& run = *call.run;
  if (call.queue == nullptr || call.guards != nullptr) return false;
  if (run.config.inspector != nullptr || run.substitutions != nullptr) return false;
  return !call.watching || !(run.watchpoints->does(WATCH_SAVE) || run.watchpoints->does(WATCH_STACK));
}

}  // namespace

bool may_defer(const CallState& call) { return call.crumbs && is_free_to_wait(call); }

bool may_join(const CallState& call) { return call.level == LEVEL_HASH && is_free_to_wait(call); }

HeldTensor held_for(const CallState& call, const Sight& sight, uint64_t handle) {
  if (!call.deferring) return {};
  if (call.joins) return sight.phase == PHASE_AFTER ? HeldTensor(handle) : HeldTensor();
  if (sight.wanted != device::StatsWanted::kNumbers || sight.meta.storage_bytes > kMostHeldBytes) return {};
  return HeldTensor(handle);
}

void settle_before(const LaunchState& launch, uint32_t n_values) {
  const CallState& call = *launch.call;
  if (call.queue == nullptr || !call.queue->has_waiting()) return;
  call.queue->settle(call.deferring && !call.joins && leaves_alone(launch, n_values, *call.queue));
}

}  // namespace aoti_debug
