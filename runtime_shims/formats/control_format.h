// The control page of a running process: what `aoti-debug attach` asks of the runtime, and what `aoti-debug top` reads.
//
// It is the content of a file without a name (memfd_create) that the process keeps open, one for each instrumented
// library: /proc/PID/fd/N is a link to "/memfd:aoti-debug-control (deleted)". It goes with the process.
//
// Who asks writes `settings`, then adds 1 to `requested`. The next call of the model that begins sets `accepted` to the
// request and begins a run with these settings; calls that are running end in the run before. On a device it waits for
// a call that begins while no other is running.
#pragma once

#include <stdint.h>

#define AOTI_DEBUG_CONTROL_MAGIC "AOTIDBP1"  // 8 bytes, no terminator in the page
#define AOTI_DEBUG_CONTROL_VERSION 1u
#define AOTI_DEBUG_CONTROL_NAME "aoti-debug-control"

// Why a request is not in force yet.
typedef enum ControlDelay {
  DELAY_NONE = 0,
  DELAY_CALLS = 1,     // on a device: when a call began, another one was running
  DELAY_CAPTURED = 2,  // a CUDA graph holds calls of the run, which it may replay
} ControlDelay;

typedef struct ControlPage {
  char magic[8];
  uint32_t version;
  uint32_t requested;
  uint32_t accepted;
  uint32_t delay;      // a ControlDelay, of the last call that began after the request
  uint32_t level;      // in force
  uint32_t last_site;  // of the launch that began last in the run: index in the manifest's sites
  uint64_t calls;      // of the model that have begun, at any level
  uint64_t launches;   // that have begun in the run
  uint64_t settings_bytes;
  uint64_t runs;             // that have begun
  char run_directory[1024];  // of the run, absolute, ends with 0; "": no run has begun
  char library[976];         // the file that was loaded, ends with 0
  char settings[2032];       // lines NAME=value: they go before the environment's variables; at most 2031 bytes
} ControlPage;               // 4096 bytes

#ifdef __cplusplus
static_assert(sizeof(ControlPage) == 4096, "");
#endif
