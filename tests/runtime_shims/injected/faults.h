// What the host (host.cpp) and the failing calls (faults.cpp, driver_faults.cpp) share: which call of the runtime
// fails, and how.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>

enum FaultClass : uint32_t { FAULT_OF_MEMORY, FAULT_OF_SYSTEM, FAULT_OF_DEVICE };

// Lies in memory that the host and its children share.
struct Faults {
  std::atomic<uint32_t> armed;  // calls of the class are counted and fail
  uint32_t fault_class;
  uint32_t choice;              // which of the errors that such a call may end with
  uint64_t part;                // 0, or how many bytes a short write writes, of those that would be more
  int32_t only;                 // 0, or an errno: no call counts but those that may end with it, which they do
  uint64_t first, count;        // those that fail
  std::atomic<uint64_t> calls;  // since it was armed
  std::atomic<uint32_t> failed;
  char name[64];                   // of the call that failed first
  int32_t error;                   // of it: its errno, or kHalf
  uint64_t from;                   // where it was made: an offset in the library
  std::atomic<uint32_t> removals;  // among those that failed: unlink and rmdir
};

constexpr int kHalf = -1;  // some of the bytes are written: half of them, or `part`

// The error that a call ends with; 0 where it does not fail.
int fault_of(FaultClass of, const char* name, std::initializer_list<int> errors, const void* from);

// Has the device of the package begin, where it has one.
__attribute__((weak)) void begin_device();
