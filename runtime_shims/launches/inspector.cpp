#include "inspector.h"

#include <algorithm>
#include <string>

#include "launch_record.h"
#include "subjects.h"
#include "tensors/dtype.h"
#include "tensors/hashing.h"
#include "tensors/readable.h"
#include "tensors/strided.h"
#include "tensors/torch_shim.h"

namespace aoti_debug {
namespace {

// Of a tensor in host memory; 0 of others.
uint64_t inspected_hash(const TensorMeta& meta) {
  if (meta.device_type != kDeviceCpu || !unreadable(meta).empty()) return 0;
  constexpr int64_t kAtOnce = 4096;
  const device::TensorView view = view_of(meta);
  uint8_t gathered[kAtOnce * 16];
  const StridedReader reader(view);
  uint64_t sum = 1;
  for (int64_t at = 0; at < view.numel; at += kAtOnce) {
    const int64_t count = std::min(kAtOnce, view.numel - at);
    const uint64_t first_word = static_cast<uint64_t>(at) * view.element_bytes / sizeof(uint64_t);
    const uint8_t* bytes = reader.read(at, count, gathered);
    sum += hash_bytes(bytes, static_cast<size_t>(count) * view.element_bytes, first_word);
  }
  return sum;
}

}  // namespace

void call_inspector(const LaunchState& launch, const AotiDebugValue* values, Phase phase) {
  const CallState& call = *launch.call;
  for (const Subject& subject : subjects(launch, values, phase, phase == PHASE_AFTER)) {
    const AotiDebugSlot& slot = launch.site->slots[subject.slot];
    if (phase == PHASE_BEFORE && !has_data_before(slot)) continue;
    const uint64_t handle = tensor_handle(slot, values);
    AtenTensorHandle tensor = nullptr;
    if (handle == 0 || aoti_torch_new_tensor_handle(reinterpret_cast<AtenTensorHandle>(handle), &tensor) != 0) continue;
    AotiDebugInspection inspection{};
    inspection.kernel = launch.site->kernel;
    inspection.argument = slot.name;
    inspection.tensor = tensor;
    inspection.call = call.call;
    inspection.launch = launch.launch;
    inspection.site = launch.site->id;
    inspection.kind = call.kind;
    inspection.phase = static_cast<uint8_t>(phase);
    inspection.role = slot.role;
    const uint64_t before = inspected_hash(subject.meta);
    const int32_t stops = call.run->config.inspector(&inspection);
    const LinePrefix prefix(call.id(launch.launch), 0);
    const std::string where = std::string(prefix.text()) + launch.site->kernel + " " + slot.name;
    if (stops != 0) return call.run->stop("aoti-debug: stopped by the inspector in " + where);
    if (inspected_hash(subject.meta) == before) continue;
    inspection.tensor = nullptr;
    call.run->config.inspector(&inspection);
    return call.run->stop("aoti-debug: the inspector has changed the tensor in " + where);
  }
}

}  // namespace aoti_debug
