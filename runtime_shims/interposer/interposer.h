// Between the library that interposes the functions that a model's library calls (dispatch.cpp, entry.cpp and the
// generated entries), and the one that records what it is told (recorder.cpp and the generated tables).
//
// They are two so that only the first one has to be in the global scope of the dynamic linker: the other one brings
// torch's libraries along.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "aoti_debug.h"

#ifdef __cplusplus
extern "C" {
#endif

// What is done when a symbol is called.
typedef enum AotiDebugAction {
  AOTI_DEBUG_ACTION_LAUNCH = 0,  // a launch of its one site
  AOTI_DEBUG_ACTION_NODE = 1,    // aoti_torch_proxy_executor_call_function: its second argument tells the site
  AOTI_DEBUG_ACTION_KERNEL = 2,  // cuLaunchKernel: the function tells the site
  AOTI_DEBUG_ACTION_CONFIG = 3,  // cuLaunchKernelEx
  AOTI_DEBUG_ACTION_NAME = 4,    // cuModuleGetFunction: no launch; its function gets a name
} AotiDebugAction;

// An interposed symbol. The sites of a launch of several are one after the other; the last one is for what is none of
// the others.
typedef struct AotiDebugInterposed {
  const char* symbol;
  uint32_t first_site;
  uint32_t n_sites;
  uint32_t action;  // AotiDebugAction
  uint32_t n_params;
  const uint8_t* params;  // AotiDebugType of each
  uint32_t returns;       // 1: a status, 0 is success; 0: nothing
  uint32_t reserved;
} AotiDebugInterposed;

// The registers of a call, as System V passes them on x86-64. entry.cpp knows the offsets.
typedef struct AotiDebugFrame {
  uint64_t integers[6];
  uint64_t floats[8][2];
  uint64_t rax;           // before: how many vector registers a variadic call uses; after: the result
  const uint64_t* stack;  // the arguments that lie there
  const void* caller;     // the return address
  uint64_t rdx;           // of the result
  uint64_t float_results[2][2];
} AotiDebugFrame;

// A call that is being recorded; lives on the stack.
typedef struct AotiDebugInterposedCall {
  AotiDebugLaunch launch;
  AotiDebugValue values[96];
  uint32_t symbol;
  uint32_t launched;
} AotiDebugInterposedCall;

typedef struct AotiDebugHooks {
  void (*enter)(AotiDebugInterposedCall* call, uint32_t symbol, const AotiDebugFrame* frame);
  // `message`: of an exception that leaves the function; nullptr where it returned.
  void (*leave)(AotiDebugInterposedCall* call, const AotiDebugFrame* frame, const char* message);
} AotiDebugHooks;

// Generated. The names are those of the entries; both libraries have them, in one order.
extern AOTI_DEBUG_HIDDEN const AotiDebugInterposed aoti_debug_interposed[];
extern AOTI_DEBUG_HIDDEN const uint32_t aoti_debug_n_interposed;

#ifdef __cplusplus
}  // extern "C"
#endif
