// The journal's records of calls and launches.
#pragma once

#include <cstdint>

#include "aoti_debug.h"
#include "run/thread_state.h"
#include "tensors/tensor_meta.h"

namespace aoti_debug {

// What is behind a slot at one moment: VALUE_TENSOR with its meta, or another ValueTag.
struct SlotReading {
  ValueTag tag;
  uint8_t type;   // AotiDebugType of a VALUE_NUMBER
  uint64_t bits;  // of a VALUE_NUMBER
};

// `after`: the callee has returned without an error, so that its outputs may be read.
SlotReading read_slot(const AotiDebugSlot& slot, const AotiDebugValue* values, bool after, TensorMeta* meta);

// Whether `read_slot` finds a tensor in that slot of a launch. The shim is not asked again where the launch has just
// been recorded and its arguments are the same tensors still.
bool read_tensor_slot(const LaunchState& launch, uint16_t slot, const AotiDebugValue* values, bool after,
                      TensorMeta* meta);

// The handle of the tensor that `read_slot` found; 0 where there is none.
uint64_t tensor_handle(const AotiDebugSlot& slot, const AotiDebugValue* values);

// Records the wall clock, by which what a device's own profiler records is found in the call.
void record_clock(const CallState& call);

void record_call_begin(CallState& call, bool capturing, uint64_t now_ns);
void record_call_end(const CallState& call, bool failed, uint64_t now_ns);

// `n_values` expressions were passed. Returns how many slots were recorded: ThreadState::values and, where they are
// tensors, ThreadState::tensors have them until something else is recorded.
uint32_t record_launch_begin(const LaunchState& launch, const AotiDebugValue* values, uint32_t n_values);
// `crumb`: a breadcrumb follows.
void record_launch_end(const LaunchState& launch, const AotiDebugValue* values, int32_t status, bool crumb,
                       uint64_t now_ns);
void record_grid(const LaunchState& launch, const AotiDebugKernel& kernel, const uint32_t grid[3], uint32_t num_warps,
                 uint32_t shared_bytes, void* const* args);

// `launch` is nullptr for a fault that was noticed outside any launch.
void record_fault(CallState& call, const LaunchState* launch, FaultDomain domain, int32_t code, const char* text);

}  // namespace aoti_debug
