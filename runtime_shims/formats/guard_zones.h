// The zones of known bytes around a guarded buffer, for the host and for kernels.
//
// A guarded buffer lies in an allocation of guarded_bytes(bytes): a zone, the buffer, a zone, and what makes whole
// words of 8 bytes of it. Word i of the allocation holds guard_word(i) where it is part of a zone.
#pragma once

#include <cstdint>

#include "content_hash.h"

namespace aoti_debug {

constexpr uint64_t kSmallestGuard = uint64_t{4} << 10;  // a multiple of every alignment that allocators promise
constexpr uint64_t kLargestGuard = uint64_t{64} << 10;

// The length of a zone: that of the buffer, so that an index that is one row too large ends in it, within limits.
AOTI_DEBUG_HOST_DEVICE constexpr uint64_t guard_bytes(uint64_t bytes) {
  const uint64_t wanted = bytes < kLargestGuard ? bytes : kLargestGuard;
  return wanted <= kSmallestGuard ? kSmallestGuard : (wanted + kSmallestGuard - 1) / kSmallestGuard * kSmallestGuard;
}

AOTI_DEBUG_HOST_DEVICE constexpr uint64_t guarded_bytes(uint64_t bytes) {
  return (bytes + 2 * guard_bytes(bytes) + 7) / 8 * 8;
}

AOTI_DEBUG_HOST_DEVICE constexpr uint64_t guard_word(uint64_t index) {
  return (index + 1) * 0x9e3779b97f4a7c15u ^ 0xc3a5c85c97cb3127u;
}

// Bytes [begin, end) of the allocation; `end` is a multiple of 8.
struct Zone {
  uint64_t begin;
  uint64_t end;

  // The bytes of word `index` that are part of the zone, which `index` is within: 0xff each.
  AOTI_DEBUG_HOST_DEVICE constexpr uint64_t mask(uint64_t index) const {
    return index * 8 >= begin ? ~uint64_t{0} : ~uint64_t{0} << (begin - index * 8) * 8;
  }
};

AOTI_DEBUG_HOST_DEVICE constexpr Zone zone_before(uint64_t bytes) { return {0, guard_bytes(bytes)}; }
AOTI_DEBUG_HOST_DEVICE constexpr Zone zone_after(uint64_t bytes) {
  return {guard_bytes(bytes) + bytes, guarded_bytes(bytes)};
}

struct GuardedMemory {
  uint64_t data;        // address of the buffer's first byte
  uint64_t bytes;       // of the buffer
  uint32_t allocation;  // index in the manifest's allocations
  uint32_t reserved;
};

// A launch whose damage is looked for.
struct GuardedLaunch {
  uint32_t call;
  uint32_t launch;
  uint32_t kind;  // AotiDebugCallKind
};

}  // namespace aoti_debug
