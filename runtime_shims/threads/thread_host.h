// The functions of thread_host.cpp, which aoti_debug/runs/run/thread_host.py calls.
#pragma once

#include <cstdint>

extern "C" {

// What became of a call.
enum AotiDebugThreadCallState : uint32_t {
  THREAD_CALL_NOT_MADE = 0,
  THREAD_CALL_EQUAL = 1,
  THREAD_CALL_DIFFERS = 2,  // when it returned
  THREAD_CALL_CHANGED = 3,  // it was equal when it returned, and different when the next call of its thread had ended
  THREAD_CALL_RAISED = 4,
};

struct AotiDebugThreadCall {
  uint32_t thread;  // that makes it
  uint32_t inputs;  // the number of its set of inputs
  uint32_t state;   // AotiDebugThreadCallState
  uint32_t output;  // the first that differs
  void* tensor;     // that output
};

struct AotiDebugThreadPlan {
  uint32_t threads;
  uint32_t calls;
  uint32_t updates;          // the weights are updated after each call of thread 0
  uint32_t perturbs_memory;  // perturbed_memory.h
  uint32_t seed;             // of its random numbers
};

struct AotiDebugWeightsUpdate {
  uint32_t loads;  // by load_constants; 0: by update_constant_buffer
  uint32_t inactive;
  uint32_t whole;
  uint32_t user_managed;
};

#define AOTI_DEBUG_EXPORT __attribute__((visibility("default")))

// Why the last function of this thread failed.
AOTI_DEBUG_EXPORT const char* aoti_debug_threads_error(void);

AOTI_DEBUG_EXPORT void* aoti_debug_threads_load(const char* path, const char* model, uint64_t runners, int32_t device);
AOTI_DEBUG_EXPORT void aoti_debug_threads_unload(void* host);

// The structure of the inputs (0) or of the outputs (1).
AOTI_DEBUG_EXPORT const char* aoti_debug_threads_spec(void* host, uint32_t index);
AOTI_DEBUG_EXPORT int32_t aoti_debug_threads_weights(void* host, const char* const* names, void* const* tensors,
                                                     uint64_t count, const AotiDebugWeightsUpdate* how);

// Adds a set of inputs, and what the model returns for the next set: without any, what it returns first is expected.
AOTI_DEBUG_EXPORT void aoti_debug_threads_inputs(void* host, void* const* tensors, uint64_t count);
AOTI_DEBUG_EXPORT void aoti_debug_threads_expect(void* host, void* const* tensors, uint64_t count);

// What is expected of a set of inputs; nullptr after the last output.
AOTI_DEBUG_EXPORT void* aoti_debug_threads_expected(void* host, uint32_t inputs, uint64_t index);

// Makes the threads, which wait, and writes their ids.
AOTI_DEBUG_EXPORT int32_t aoti_debug_threads_make(void* host, const AotiDebugThreadPlan* plan,
                                                  AotiDebugThreadCall* calls, uint32_t* ids);

// Lets them make their calls; returns how often the weights were updated.
AOTI_DEBUG_EXPORT int32_t aoti_debug_threads_run(void* host);
}
