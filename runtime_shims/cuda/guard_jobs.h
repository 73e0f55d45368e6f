// What the host hands to the kernels that fill guards and compare them, and what they report.
#pragma once

#include <cstdint>

#include "formats/guard_zones.h"
#include "formats/journal_format.h"

namespace aoti_debug::cuda {

constexpr uint32_t kGuardThreads = 256;
constexpr uint32_t kGuardsPerJob = 160;  // a kernel's parameters have room for 4 KiB
constexpr uint32_t kGuardReports = 256;  // of a stream

// A report in host memory that the device writes. `ticket` is stored last.
struct GuardReport {
  GuardDamage damage;
  uint32_t ticket;  // the report's number from 1
  uint32_t reserved;
};

struct GuardFillJob {
  GuardedMemory memory;
  uint64_t poison;  // the byte, eight times
};

struct GuardCheckJob {
  uint64_t reports;  // device address of GuardReport[kGuardReports]
  uint64_t counter;  // device address of a uint32_t: reports so far
  GuardedLaunch launch;
  uint32_t count;
  GuardedMemory memories[kGuardsPerJob];
};
static_assert(sizeof(GuardCheckJob) <= 4096, "");

}  // namespace aoti_debug::cuda
