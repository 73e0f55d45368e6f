#include "flight_recorder_inputs.h"

#include <string.h>

#include <algorithm>

#include "device/device.h"
#include "launch_record.h"
#include "tensors/dtype.h"
#include "tensors/readable.h"

namespace aoti_debug {
std::vector<FlightSource> flight_sources(const LaunchState& launch, const AotiDebugValue* values, uint32_t n_values) {
  const AotiDebugSite& site = *launch.site;
  std::vector<FlightSource> sources;
  sources.reserve(site.n_slots);
  for (uint32_t i = 0; i < site.n_slots; ++i) {
    const AotiDebugSlot& slot = site.slots[i];
    if (!is_tensor_form(slot.form) || slot.role == AOTI_DEBUG_ROLE_OUT || slot.value >= n_values) continue;
    const bool is_known = std::any_of(sources.begin(), sources.end(), [&](const FlightSource& source) {
      return strcmp(site.slots[source.slot].name, slot.name) == 0;
    });
    TensorMeta meta{};
    if (is_known || read_slot(slot, values, false, &meta).tag != VALUE_TENSOR) continue;
    const bool is_readable = unreadable(meta).empty();
    sources.push_back({static_cast<uint16_t>(i), is_readable, meta.device_type != kDeviceCpu, meta.data,
                       is_readable ? spanned_bytes(view_of(meta)) : 0});
  }
  return sources;
}

void record_flight(const LaunchState& launch, const AotiDebugValue* values, uint32_t n_values) {
  const CallState& call = *launch.call;
  // A stream orders the work on it, whichever thread enqueues it; CU_STREAM_PER_THREAD is another one in each thread.
  const auto stream = reinterpret_cast<uintptr_t>(call.stream);
  const bool is_thread_order = !call.run->has_device || stream == 2;
  const FlightOrder order{stream, reinterpret_cast<uintptr_t>(call.model), is_thread_order ? call.thread->id : 0};
  call.run->flight.record(call.id(launch.launch), call.stream, order, flight_sources(launch, values, n_values));
}

}  // namespace aoti_debug
