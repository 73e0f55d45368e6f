#include "flight_recorder_inputs.h"

#include <string.h>

#include <algorithm>

#include "device/device.h"
#include "launch_record.h"
#include "tensors/dtype.h"
#include "tensors/readable.h"

namespace aoti_debug {
namespace {

// What the file of the weights has of the tensor. On a device only the copy tells whether it is the same.
void refer(WeightsFile& weights, const TensorMeta& meta, const char* argument, FlightSource* source) {
  if (logical_bytes(meta) <= kReferredBytes) return;
  const std::optional<uint64_t> place = weights.find(meta, argument);
  if (!place.has_value()) return;
  source->place = *place;
  if (source->on_device) return;
  const std::optional<HashSums> same = weights.unchanged(meta, argument, *place);
  if (!same.has_value()) return;
  source->referred = true;
  source->hash[0] = same->first;
  source->hash[1] = same->second;
}

}  // namespace

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
    FlightSource source{};
    source.slot = static_cast<uint16_t>(i);
    source.readable = is_readable;
    source.on_device = meta.device_type != kDeviceCpu;
    source.address = meta.data;
    source.bytes = is_readable ? spanned_bytes(view_of(meta)) : 0;
    if (is_readable) refer(launch.call->run->weights, meta, slot.name, &source);
    sources.push_back(source);
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
