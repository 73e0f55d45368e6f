// Nanoseconds since the start of a run, cheap enough for every launch.
#pragma once

#include <time.h>

#include <cstdint>

namespace aoti_debug {

class Clock {
 public:
  // Time is 0 from now on. Where the processor has a counter that runs at one rate, takes a millisecond to measure it.
  void start();

  uint64_t now_ns() const {
    if (scale_ != 0) return static_cast<uint64_t>((static_cast<Wide>(ticks() - start_ticks_) * scale_) >> kShift);
    return monotonic_ns() - start_ns_;
  }

  uint64_t start_unix_ns() const { return start_unix_ns_; }

  static uint64_t unix_ns() { return read(CLOCK_REALTIME); }

  static uint64_t monotonic_ns() { return read(CLOCK_MONOTONIC); }

 private:
  static uint64_t read(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
  }

  __extension__ typedef unsigned __int128 Wide;
  static constexpr int kShift = 32;

  static uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    asm volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return 0;
#endif
  }

  uint64_t scale_ = 0;  // nanoseconds a tick, times 2^32; 0: there is no usable counter
  uint64_t start_ticks_ = 0;
  uint64_t start_ns_ = 0;
  uint64_t start_unix_ns_ = 0;
};

}  // namespace aoti_debug
