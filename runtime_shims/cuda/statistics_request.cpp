#include "statistics_request.h"

namespace aoti_debug::cuda {
namespace {

struct Dtype {
  const char* module;  // of statistics.ptx
  uint32_t integer;
};

// False: a dtype without statistics.
bool find_dtype(int32_t scalar_type, Dtype* dtype) {
  switch (scalar_type) {
#define AOTI_DEBUG_CASE(TYPE, NUMBER)                           \
  case NUMBER:                                                  \
    *dtype = Dtype{#TYPE, integer_kind<typename TYPE::Wide>()}; \
    return true;
    AOTI_DEBUG_ELEMENT_TYPES(AOTI_DEBUG_CASE)
#undef AOTI_DEBUG_CASE
    default:
      return false;
  }
}

constexpr const char* kOpaqueModules[] = {"Opaque1", "Opaque2", "Opaque4", "Opaque8", "Opaque16"};

}  // namespace

void request_statistics(const device::TensorView& view, device::StatsWanted wanted, const StreamState& stream,
                        StatisticsRequest* request) {
  request->module = nullptr;
  request->job = StatisticsJob{};
  PendingStatistics& pending = request->pending;
  pending = PendingStatistics{};
  pending.numel = static_cast<uint64_t>(view.numel);
  pending.bytes = pending.numel * view.element_bytes;
  pending.wanted = wanted;
  const bool counted = wanted != device::StatsWanted::kHash;
  Dtype dtype{"", 0};
  Layout& layout = request->layout;
  const char* skipped = unreadable(view, stream);
  if (counted && !find_dtype(view.dtype, &dtype)) skipped = "its dtype has no statistics";
  if (skipped[0] == '\0' && !describe(view, &layout)) skipped = "it has too many dimensions";
  pending.integer = dtype.integer;
  pending.skipped = skipped;
  const bool shown = wanted != device::StatsWanted::kNumbers && view.numel <= 64;
  if (skipped[0] != '\0' || view.numel == 0) return;
  if (shown) pending.value_bytes = static_cast<uint32_t>(pending.bytes);
  request->module = counted ? dtype.module : by_size(kOpaqueModules, view.element_bytes);
  layout.elements.chunked = !shown && is_contiguous(layout, view.element_bytes) && view.data % kChunkBytes == 0;
  StatisticsJob& job = request->job;
  job.elements = layout.elements;
  job.interleaving = layout.elements.chunked ? Interleaving{} : interleave(layout, view.element_bytes);
  job.chunks = (pending.bytes + kChunkBytes - 1) / kChunkBytes;
  job.shown = shown;
}

}  // namespace aoti_debug::cuda
