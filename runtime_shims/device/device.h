// What the runtime asks of a device. `device_cpu.cpp` and the files of `cuda/` define these functions; a package links
// one of the two. None throws; on failure they return false or a code and change nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/guard_zones.h"
#include "formats/journal_format.h"
#include "formats/watch_nodes.h"

namespace aoti_debug::device {

// A tensor as it lies in memory. `data` is the address of element 0 (storage offset included).
struct TensorView {
  uint64_t data;
  int32_t dtype;  // c10::ScalarType
  int32_t device_type;
  int32_t device_index;
  uint32_t ndim;
  const int64_t* sizes;
  const int64_t* strides;  // elements
  int64_t numel;
  size_t element_bytes;
};

// What is wanted of a tensor: its hash, with its values where it has at most 64 elements; numbers alone; or everything.
enum class StatsWanted : uint8_t { kHash, kNumbers, kAll };

struct StatsResult {
  TensorStats stats;        // call, launch, slot, kind, phase and layout are the caller's to fill
  uint8_t values[64 * 16];  // elements of a tensor of at most 64, stats.value_bytes of them
  // row-major indices of the first NaN, infinity and negative infinity; 0 where there is none
  uint64_t nan_index, pos_inf_index, neg_inf_index;
};

// Whether tensors of this device type are in this device's memory (false: host memory).
bool owns(int32_t device_type);

// ---- breadcrumbs

// Makes `bytes` of shared host memory at `base` (page aligned) writable by the device. False where there is no device.
bool register_crumbs(void* base, size_t bytes);

// Enqueues on `stream` the store of `value` at base + offset, after everything enqueued so far.
bool write_crumb(void* stream, size_t offset, uint32_t value);

// ---- CUDA graphs: what a graph holds of a call that it captures, beside the model's own nodes

// A word in the memory of breadcrumbs.
struct CrumbWord {
  size_t offset;
  uint32_t value;
};

// Begins to add to the graph that captures `stream`: what begins a replay stores `first`, as write_crumb does, and
// counts it in the word at `replays_offset`. Never given back, since the graph may be replayed at any time; nullptr:
// nothing can be added.
void* begin_captured(void* stream, CrumbWord first, size_t replays_offset);

// Adds the statistics of a tensor. False where it has none.
bool add_stats(void* captured, void* stream, const TensorView& view);

// Adds a condition on the statistics that were added last; what is captured later does not wait for it. What it finds
// may be read at any time until the process ends; nullptr: it could not be added.
const CapturedWatch* add_watch(void* captured, void* stream, const WatchNode* nodes, uint32_t count);

// What is left of a tensor's statistics.
enum class Kept : uint8_t {
  kNothing,  // no replay has measured it
  kTorn,     // a replay was storing them, or a later one has stored its own over them
  kWhole,
};

// Adds the statistics of several tensors, in as few kernels as there are dtypes; what the last `replays` of them, a
// power of two, have measured stays in host memory. `kept[i]` is what read_last and read_replay take; nullptr: they
// could not be added.
void keep_stats(void* captured, void* stream, const TensorView* views, int count, StatsWanted wanted, uint32_t replays,
                const void** kept);

// Reads what the last replay that has stored it whole has measured; waits for nothing, and may be called until the
// process ends. `replay` is the number of that replay, from 1; 0: `result` is the same in every replay.
Kept read_last(const void* kept, StatsResult* result, uint32_t* replay);

// The same of the replay with this number.
Kept read_replay(const void* kept, uint32_t replay, StatsResult* result);

// ---- the flight recorder

// Makes `bytes` of the flight recorder's memory at `base` writable by the device. False where there is no device.
bool register_flight(void* base, size_t bytes);

// Takes the flight recorder's memory from the device again; the device must have done all that it was told to write
// there. False: it still knows the memory.
bool unregister_flight();

bool write_flight(void* stream, size_t offset, uint32_t value);

// Enqueues on `stream` the copy of device memory to `host`, in the flight recorder's memory, after everything enqueued
// so far; returns at once. False: it was not enqueued.
bool copy_to_flight(void* stream, uint64_t address, size_t bytes, void* host);

// ---- streams

bool is_capturing(void* stream);

// The stream that the calling thread's work goes to; nullptr: the default stream, or that cannot be told.
void* current_stream(int32_t device_index);

// Waits until all that is enqueued on the stream has been done. False on a device error.
bool wait_stream(void* stream);

// The driver's pending error: 0 and an empty text, or its CUresult and name. Does not wait.
int32_t pending_error(void* stream, char* text, size_t text_bytes);

// ---- level 1: device memory to host memory

// Copies the tensor's elements in row-major order into `host` (numel * element_bytes bytes), after everything enqueued
// on `stream` so far; returns at once. A copy of a non-contiguous tensor is gathered on the device.
// `ticket` is passed to `wait_copy`. False: the copy could not be enqueued.
bool begin_copy(void* stream, const TensorView& view, size_t first_byte, size_t bytes, void* host, uint64_t* ticket);

// Waits until the copy has arrived. False on a device error.
bool wait_copy(uint64_t ticket);

// Memory that begin_copy can fill at full speed (pinned); nullptr where there is none left.
void* allocate_staging(size_t bytes);
void free_staging(void* memory);

// ---- what if: host memory to device memory

// Copies host memory to an address of the device, after everything enqueued on `stream` so far; returns when it has
// been read. False on a device error.
bool write_memory(void* stream, uint64_t address, size_t bytes, const void* host);

// ---- level 2: statistics on the device

// Enqueues the statistics of several tensors, in as few kernels as there are dtypes; returns at once. The results are
// picked up by `take_stats`, in the order in which they were begun on this stream. Returns how many of the first
// tensors were begun (fewer: there is no room, take first).
int begin_stats(void* stream, const TensorView* views, int count, StatsWanted wanted);

// Results that are ready, oldest first: with `wait`, waits for all that are enqueued on the stream. Returns how many of
// `results` were filled, or -1 on a device error (results that arrived before it can be taken with wait = false).
int take_stats(void* stream, StatsResult* results, int capacity, bool wait);

// Results that were begun on the stream and are not taken are nobody's from now on, also those that are still to come.
void forget_stats(void* stream);

// A run has ended, and no call is running. The same for all streams, and for reports of damage to guards; and what
// could not be had of the device is asked for again.
void end_run();

// ---- guards: zones of known bytes around buffers (guard_zones.h)

// Enqueues on `stream` the filling of both zones, and of the buffer with the byte `poison`.
bool fill_guarded(void* stream, const GuardedMemory& memory, uint8_t poison);

// Enqueues the comparison of all zones with what they should hold: what a launch has damaged is reported as its doing
// and mended. False: it could not be enqueued.
bool check_guards(void* stream, const GuardedLaunch& launch, const GuardedMemory* memories, uint32_t count);

// Damage that has been reported, oldest first: with `wait`, waits for all checks that are enqueued on the stream.
// Returns how many of `damages` were filled, or -1 on a device error (reports that arrived before it can be taken with
// wait = false). A stream takes 256 reports in all.
int take_damage(void* stream, GuardDamage* damages, int capacity, bool wait);

}  // namespace aoti_debug::device
