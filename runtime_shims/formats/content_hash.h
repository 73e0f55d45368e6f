// The hash of a tensor's bytes, computed alike on a CPU and on a GPU.
//
// The bytes are the elements in row-major order, without gaps. They are read as 64-bit little-endian words w[0..n), the
// last one padded with zero bytes. With arithmetic modulo 2^64:
//
//   mix(x)  = splitmix64's finaliser:  x ^= x >> 30;  x *= 0xbf58476d1ce4e5b9;
//                                      x ^= x >> 27;  x *= 0x94d049bb133111eb;  x ^= x >> 31
//   sum(s)  = mix(w[0] + 1 * s) + mix(w[1] + 2 * s) + ... + mix(w[n-1] + n * s)
//   hash    = mix(sum(0x9e3779b97f4a7c15) + bytes)                             TensorStats::hash, TensorFile::hash[0]
//   hash[1] = mix(sum(0xd1b54a32d192ed03) + bytes)                                                TensorFile::hash[1]
//
// A sum does not depend on the order of its terms, so any number of threads may share the work. In Python:
//
//   def content_hash(data: bytes, step: int = 0x9E3779B97F4A7C15) -> int:
//       w = numpy.frombuffer(data + bytes(-len(data) % 8), "<u8")
//       with numpy.errstate(over="ignore"):
//           x = w + numpy.arange(1, len(w) + 1, dtype="u8") * numpy.uint64(step)
//           return mix((int(mix(x).sum()) + len(data)) % 2**64)
#pragma once

#include <cstdint>

#include "host_device.h"

namespace aoti_debug {

constexpr uint64_t kHashStep = 0x9e3779b97f4a7c15u;
constexpr uint64_t kHashStep2 = 0xd1b54a32d192ed03u;

AOTI_DEBUG_HOST_DEVICE inline uint64_t hash_mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The term of word `index` (from 0); terms are added.
AOTI_DEBUG_HOST_DEVICE inline uint64_t hash_term(uint64_t word, uint64_t index, uint64_t step = kHashStep) {
  return hash_mix(word + (index + 1) * step);
}

AOTI_DEBUG_HOST_DEVICE inline uint64_t hash_finish(uint64_t sum, uint64_t bytes) { return hash_mix(sum + bytes); }

}  // namespace aoti_debug
