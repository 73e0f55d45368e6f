// What the host hands to the kernels, and how a kernel finds a tensor's elements.
#pragma once

#include "element_types.h"
#include "interleaving.h"
#include "statistics_math.h"

namespace aoti_debug::cuda {

constexpr uint32_t kMaxDims = 16;  // after dimensions that lie behind one another have been joined
constexpr uint32_t kBlockThreads = 256;
constexpr uint32_t kBlocksPerMultiprocessor = 3;  // that a statistics kernel leaves registers for
constexpr uint32_t kMaxReceived = 128;            // results of blocks that one block merges at a time
constexpr uint32_t kShownBytes = 1024;            // 64 elements of 16 bytes

// A dimension of a strided tensor.
struct Dimension {
  uint64_t size;
  int64_t stride;  // bytes
  uint32_t magic;  // with `shift`: divides indices below 2^31 by the size
  uint32_t shift;
};

// The elements of a strided tensor. Its dimensions, at least one, are in an array of them, the outermost first.
struct Elements {
  uint64_t data;  // address of element 0
  uint64_t count;
  uint16_t n_dims;
  uint16_t first_dim;  // in the array
  uint16_t chunked;    // 1: contiguous and aligned, so that chunks are read whole
  uint16_t narrow;     // 1: every index fits 31 bits, so that `magic` and `shift` are used
};

// One tensor's result, in host memory that the device writes. Each word of the Partial is stored together with the
// result's ticket, at once: so it has arrived when all have, in whatever order, and the device need not wait for any.
// The values are there before; where none are shown, the slot need not have room for them.
struct StatisticsSlot {
  uint64_t words[kPartialWords];  // the ticket in the upper half
  uint64_t values[kShownBytes / 8];
};

// The bytes of a slot with, or without, room for values.
AOTI_DEBUG_FN uint32_t slot_bytes(bool shown) {
  return static_cast<uint32_t>(shown ? sizeof(StatisticsSlot) : sizeof(StatisticsSlot::words));
}

AOTI_DEBUG_FN uint64_t with_ticket(uint32_t word, uint32_t ticket) { return uint64_t(ticket) << 32 | word; }

// What the words of a slot say; their tickets are left out.
AOTI_DEBUG_FN Partial partial_in(const StatisticsSlot& slot) {
  uint32_t words[kPartialWords];
  for (uint32_t i = 0; i < kPartialWords; ++i) words[i] = static_cast<uint32_t>(slot.words[i]);
  Partial total;
  __builtin_memcpy(&total, words, sizeof(total));
  return total;
}

struct StatisticsJob {
  Elements elements;
  uint64_t chunks;
  uint64_t slot;  // device address of the StatisticsSlot; of several, of the first
  uint32_t ticket;
  uint32_t shown;  // 1: the values go to the slot as well; `chunked` is 0 then
  Interleaving interleaving;
};

// Several tensors of one dtype, which one launch measures. Each has blocks of its own.
struct StatisticsBatch {
  static constexpr uint32_t kMaxTensors = 16;
  static constexpr uint32_t kMaxDimsInAll = 32;  // of all tensors together

  uint32_t n_tensors;
  uint32_t hashed;                        // 1: the elements' hashes are wanted
  uint32_t first_block[kMaxTensors + 1];  // of each tensor; behind the last one: the number of all blocks
  uint32_t n_dims;                        // in `dims`
  uint64_t mailboxes;                     // device address of kPartialWords uint64_t for each block, all 0
  uint64_t replays;                       // of the uint32_t that is the ticket of all; 0: each job has its own
  uint32_t slot_mask;                     // of the ticket: which of its slots a job's result goes to
  StatisticsJob jobs[kMaxTensors];
  Dimension dims[kMaxDimsInAll];
};
static_assert(sizeof(StatisticsBatch) <= 4096, "what a kernel can be passed");

// Writes elements first, first + 1, … behind one another, padded with zero bytes to whole chunks.
struct GatherJob {
  Elements elements;
  Dimension dims[kMaxDims];
  uint64_t first;
  uint64_t count;
  uint64_t target;  // device address, 16-byte aligned
};

// Not through the read-only cache: a kernel may begin while what it is going to read is still being written.
template <class T>
AOTI_DEBUG_FN T read(uint64_t address) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const T*>(address);
#else
  T value;
  __builtin_memcpy(&value, reinterpret_cast<const void*>(address), sizeof(value));
  return value;
#endif
}

template <uint32_t kBytes>
AOTI_DEBUG_FN uint64_t read_raw(uint64_t address) {
  if constexpr (kBytes == 1) return read<uint8_t>(address);
  if constexpr (kBytes == 2) return read<uint16_t>(address);
  if constexpr (kBytes == 4) return read<uint32_t>(address);
  if constexpr (kBytes >= 8) return read<uint64_t>(address);
}

AOTI_DEBUG_FN Chunk read_chunk(uint64_t address) {
#if defined(__CUDA_ARCH__)
  const ulonglong2 words = *reinterpret_cast<const ulonglong2*>(address);
  return Chunk{{words.x, words.y}};
#else
  return Chunk{{read<uint64_t>(address), read<uint64_t>(address + 8)}};
#endif
}

AOTI_DEBUG_FN uint32_t high_product(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}

struct Position {
  uint64_t address;
  uint64_t inner;  // index in the innermost dimension
};

// Where the element with this row-major index lies.
AOTI_DEBUG_FN Position locate(const Elements& elements, const Dimension* all_dims, uint64_t index) {
  Position position{elements.data, 0};
  const Dimension* dims = all_dims + elements.first_dim;
  const uint32_t innermost = elements.n_dims - 1;
  AOTI_DEBUG_ROLL
  for (uint32_t dim = innermost; dim > 0; --dim) {
    const uint64_t size = dims[dim].size;
    uint64_t quotient;
    if (elements.narrow) {
      const auto narrow = static_cast<uint32_t>(index);
      quotient = (high_product(narrow, dims[dim].magic) + narrow) >> dims[dim].shift;
    } else {
      quotient = index / size;
    }
    const uint64_t remainder = index - quotient * size;
    position.address += remainder * static_cast<uint64_t>(dims[dim].stride);
    if (dim == innermost) position.inner = remainder;
    index = quotient;
  }
  position.address += index * static_cast<uint64_t>(dims[0].stride);
  if (innermost == 0) position.inner = index;
  return position;
}

// Adds element `k` of a chunk, of up to 8 bytes.
template <uint32_t kBytes>
AOTI_DEBUG_FN void put(Chunk& chunk, uint32_t k, uint64_t raw) {
  constexpr uint32_t per_word = 8 / kBytes;
  raw <<= k % per_word * kBytes * 8;
  chunk.words[0] |= k < per_word ? raw : 0;
  chunk.words[1] |= k < per_word ? 0 : raw;
}

// A whole chunk of elements that are one stride apart.
template <uint32_t kBytes>
AOTI_DEBUG_FN Chunk gather_apart(uint64_t address, int64_t stride) {
  if constexpr (kBytes == kChunkBytes) {
    return Chunk{{read<uint64_t>(address), read<uint64_t>(address + 8)}};
  } else {
    constexpr uint32_t per_chunk = kChunkBytes / kBytes;
    uint64_t raw[per_chunk];
    AOTI_DEBUG_UNROLL
    for (uint32_t k = 0; k < per_chunk; ++k) raw[k] = read_raw<kBytes>(address + k * static_cast<uint64_t>(stride));
    Chunk chunk{{0, 0}};
    AOTI_DEBUG_UNROLL
    for (uint32_t k = 0; k < per_chunk; ++k) put<kBytes>(chunk, k, raw[k]);
    return chunk;
  }
}

// Elements first, first + 1, …, at most a chunk of them, in row-major order; zero bytes behind the last.
template <uint32_t kBytes>
AOTI_DEBUG_FN Chunk gather_chunk(const Elements& elements, const Dimension* all_dims, uint64_t first, uint32_t count) {
  const Dimension& row = all_dims[elements.first_dim + elements.n_dims - 1];
  Position at = locate(elements, all_dims, first);
  if constexpr (kBytes == kChunkBytes) {
    return gather_apart<kBytes>(at.address, row.stride);
  } else {
    constexpr uint32_t per_chunk = kChunkBytes / kBytes;
    if (count == per_chunk && at.inner + per_chunk <= row.size) return gather_apart<kBytes>(at.address, row.stride);
    Chunk chunk{{0, 0}};
    AOTI_DEBUG_ROLL
    for (uint32_t k = 0; k < count; ++k) {
      if (at.inner == row.size) at = locate(elements, all_dims, first + k);
      put<kBytes>(chunk, k, read_raw<kBytes>(at.address));
      at.address += static_cast<uint64_t>(row.stride);
      ++at.inner;
    }
    return chunk;
  }
}

template <uint32_t kBytes>
AOTI_DEBUG_FN uint32_t elements_in_chunk(uint64_t count, uint64_t chunk) {
  constexpr uint32_t per_chunk = kChunkBytes / kBytes;
  const uint64_t left = count - chunk * per_chunk;
  return left < per_chunk ? static_cast<uint32_t>(left) : per_chunk;
}

}  // namespace aoti_debug::cuda
