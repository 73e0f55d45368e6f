#include "clock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace aoti_debug {
namespace {

#if defined(__x86_64__)
// The counter has one rate in all states of the processor, and the kernel has not found the cores' counters to differ.
bool counter_is_usable() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007u, &a, &b, &c, &d) == 0 || (d & (1u << 8)) == 0) return false;
  const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char name[32] = {};
  const ssize_t bytes = read(file, name, sizeof(name) - 1);
  close(file);
  return bytes > 0 && (strncmp(name, "tsc", 3) == 0 || strncmp(name, "kvm-clock", 9) == 0);
}
#endif

}  // namespace

void Clock::start() {
#if defined(__x86_64__)
  const bool counts = counter_is_usable();  // before the times are taken: it reads a file
#endif
  start_unix_ns_ = unix_ns();
  start_ns_ = monotonic_ns();
  start_ticks_ = ticks();
#if defined(__x86_64__)
  if (!counts) return;
  const timespec pause{0, 1000000};
  nanosleep(&pause, nullptr);
  const uint64_t ns = monotonic_ns() - start_ns_;
  const uint64_t counted = ticks() - start_ticks_;
  if (counted != 0) scale_ = static_cast<uint64_t>((static_cast<Wide>(ns) << kShift) / counted);
#elif defined(__aarch64__)
  uint64_t hertz;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
  if (hertz != 0) scale_ = static_cast<uint64_t>((static_cast<Wide>(1000000000u) << kShift) / hertz);
#endif
}

}  // namespace aoti_debug
