// The content hash (content_hash.h) of bytes in host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/content_hash.h"
#include "strided.h"

namespace aoti_debug {

// Both sums of content_hash.h.
struct HashSums {
  uint64_t first = 0;
  uint64_t second = 0;

  void add(const HashSums& other) {
    first += other.first;
    second += other.second;
  }
};

// The terms of `bytes` bytes that begin at word `first_word` of the tensor. Only the tensor's last part may end within
// a word.
uint64_t hash_bytes(const uint8_t* data, size_t bytes, uint64_t first_word);
HashSums hash_bytes_twice(const uint8_t* data, size_t bytes, uint64_t first_word);

// The content hash of a tensor in host memory: TensorStats::hash.
uint64_t host_hash(const device::TensorView& view);

// Both sums over the first `count` elements of a tensor in host memory.
HashSums hash_elements(const StridedReader& reader, int64_t count, size_t element_bytes);

}  // namespace aoti_debug
