// device.h behind plain functions, for ctypes.
#include "device/device.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using aoti_debug::device::StatsResult;
using aoti_debug::device::StatsWanted;
using aoti_debug::device::TensorView;

EXPORT int harness_owns(int32_t device_type) { return aoti_debug::device::owns(device_type); }
EXPORT int harness_register_crumbs(void* base, size_t bytes) {
  return aoti_debug::device::register_crumbs(base, bytes);
}
EXPORT int harness_write_crumb(void* stream, size_t offset, uint32_t value) {
  return aoti_debug::device::write_crumb(stream, offset, value);
}
EXPORT void* harness_begin_captured(void* stream, size_t offset, uint32_t value, size_t replays_offset) {
  return aoti_debug::device::begin_captured(stream, {offset, value}, replays_offset);
}
EXPORT int harness_add_stats(void* captured, void* stream, const TensorView* view) {
  return aoti_debug::device::add_stats(captured, stream, *view);
}
// The condition `statistic > number`.
EXPORT const aoti_debug::CapturedWatch* harness_add_watch(void* captured, void* stream, uint32_t statistic,
                                                          double number) {
  aoti_debug::WatchNode node;
  node.kind = aoti_debug::WatchNode::kGreater;
  node.left.statistic = statistic;
  node.right.number = number;
  return aoti_debug::device::add_watch(captured, stream, &node, 1);
}
EXPORT void harness_keep_stats(void* captured, void* stream, const TensorView* views, int count, int wanted,
                               uint32_t replays, const void** kept) {
  aoti_debug::device::keep_stats(captured, stream, views, count, static_cast<StatsWanted>(wanted), replays, kept);
}
EXPORT int harness_read_last(const void* kept, StatsResult* result, uint32_t* replay) {
  return static_cast<int>(aoti_debug::device::read_last(kept, result, replay));
}
EXPORT int harness_read_replay(const void* kept, uint32_t replay, StatsResult* result) {
  return static_cast<int>(aoti_debug::device::read_replay(kept, replay, result));
}
EXPORT int harness_register_flight(void* base, size_t bytes) {
  return aoti_debug::device::register_flight(base, bytes);
}
EXPORT int harness_write_flight(void* stream, size_t offset, uint32_t value) {
  return aoti_debug::device::write_flight(stream, offset, value);
}
EXPORT int harness_copy_to_flight(void* stream, uint64_t address, size_t bytes, void* host) {
  return aoti_debug::device::copy_to_flight(stream, address, bytes, host);
}
EXPORT int harness_is_capturing(void* stream) { return aoti_debug::device::is_capturing(stream); }
EXPORT int32_t harness_pending_error(void* stream, char* text, size_t bytes) {
  return aoti_debug::device::pending_error(stream, text, bytes);
}
EXPORT int harness_begin_copy(void* stream, const TensorView* view, size_t first_byte, size_t bytes, void* host,
                              uint64_t* ticket) {
  return aoti_debug::device::begin_copy(stream, *view, first_byte, bytes, host, ticket);
}
EXPORT int harness_write_memory(void* stream, uint64_t address, size_t bytes, const void* host) {
  return aoti_debug::device::write_memory(stream, address, bytes, host);
}
EXPORT int harness_wait_copy(uint64_t ticket) { return aoti_debug::device::wait_copy(ticket); }
EXPORT void* harness_allocate_staging(size_t bytes) { return aoti_debug::device::allocate_staging(bytes); }
EXPORT void harness_free_staging(void* memory) { aoti_debug::device::free_staging(memory); }
EXPORT int harness_begin_stats(void* stream, const TensorView* views, int count, int wanted) {
  return aoti_debug::device::begin_stats(stream, views, count, static_cast<StatsWanted>(wanted));
}
EXPORT int harness_take_stats(void* stream, StatsResult* results, int capacity, int wait) {
  return aoti_debug::device::take_stats(stream, results, capacity, wait != 0);
}
EXPORT int harness_fill_guarded(void* stream, const aoti_debug::GuardedMemory* memory, uint8_t poison) {
  return aoti_debug::device::fill_guarded(stream, *memory, poison);
}
EXPORT int harness_check_guards(void* stream, const aoti_debug::GuardedLaunch* launch,
                                const aoti_debug::GuardedMemory* memories, uint32_t count) {
  return aoti_debug::device::check_guards(stream, *launch, memories, count);
}
EXPORT int harness_take_damage(void* stream, GuardDamage* damages, int capacity, int wait) {
  return aoti_debug::device::take_damage(stream, damages, capacity, wait != 0);
}
EXPORT uint64_t harness_guard_bytes(uint64_t bytes) { return aoti_debug::guard_bytes(bytes); }
EXPORT uint64_t harness_guarded_bytes(uint64_t bytes) { return aoti_debug::guarded_bytes(bytes); }
EXPORT uint64_t harness_guard_word(uint64_t index) { return aoti_debug::guard_word(index); }
EXPORT size_t harness_result_bytes() { return sizeof(StatsResult); }
EXPORT size_t harness_view_bytes() { return sizeof(TensorView); }
EXPORT int harness_write_crumb_many(void* stream, size_t offset, uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!aoti_debug::device::write_crumb(stream, offset, first + i)) return 0;
  }
  return 1;
}
EXPORT int harness_begin_stats_many(void* stream, const TensorView* view, int count) {
  for (int i = 0; i < count; ++i) {
    if (aoti_debug::device::begin_stats(stream, view, 1, StatsWanted::kAll) == 0) return i;
  }
  return count;
}
