// How a block adds up what its threads have found, and how the blocks of one tensor hand that to the last of them.
#pragma once

#include "kernel_arguments.h"

namespace aoti_debug::cuda {

constexpr uint32_t kWarp = 32;
[[maybe_unused]] constexpr uint32_t kAllLanes = 0xffffffffu;
[[maybe_unused]] constexpr uint64_t kNoIndex = ~uint64_t(0);
constexpr uint32_t kWarps = kBlockThreads / kWarp;
static_assert(kPartialWords == kWarp, "each lane sends a word");

// What each thread of a block has of one number, which one warp adds up or finds the extreme of.
enum Field : uint32_t { kSum, kSquares, kFinite, kZero, kHash, kMin, kMax, kMinIndex, kMaxIndex, kFields };
static_assert(kMax < kWarps, "a warp for each number");
// The same for special values, of which most tensors have none: three counts, then three indices.
constexpr uint32_t kSpecials = 3;
static_assert(2 * kSpecials <= kWarps, "a warp for each number");

// What the threads of a block share.
struct BlockMemory {
  union {
    uint64_t fields[kFields][kBlockThreads];
    uint32_t received[kPartialWords][kMaxReceived];
  };
  uint64_t totals[kFields];
  uint64_t finite[kWarps];  // of the thread of each warp that has most of them
  double mean[kWarps];      // its mean
  int64_t exponent[kWarps];
  double pivot;
  Partial total;
};

// The memory of the calling block. Its address is a constant; functions that get a pointer to it are slower.
__device__ __forceinline__ BlockMemory& block_memory() {
  __shared__ BlockMemory memory;
  return memory;
}

// The value of the lane whose number differs by the bit `distance`.
template <class T>
__device__ __forceinline__ T of_partner(T value, uint32_t distance) {
  if constexpr (sizeof(T) == sizeof(uint32_t)) {
    return bits_as<T>(__shfl_xor_sync(kAllLanes, bits_as<uint32_t>(value), distance));
  } else {
    const auto bits = bits_as<uint64_t>(value);
    const uint32_t low = of_partner(static_cast<uint32_t>(bits), distance);
    const uint32_t high = of_partner(static_cast<uint32_t>(bits >> 32), distance);
    return bits_as<T>(uint64_t(high) << 32 | low);
  }
}

__device__ __forceinline__ uint64_t of_lane(uint64_t value, uint32_t lane) {
  const uint32_t low = __shfl_sync(kAllLanes, static_cast<uint32_t>(value), lane);
  const uint32_t high = __shfl_sync(kAllLanes, static_cast<uint32_t>(value >> 32), lane);
  return uint64_t(high) << 32 | low;
}
__device__ __forceinline__ double of_lane(double value, uint32_t lane) {
  return bits_as<double>(of_lane(bits_as<uint64_t>(value), lane));
}

// Of the values of the warp.
__device__ __forceinline__ uint64_t largest(uint64_t value) {
  AOTI_DEBUG_ROLL
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    const uint64_t other = of_partner(value, distance);
    value = value < other ? other : value;
  }
  return value;
}

// A lane whose partial is of as many finite values as any.
__device__ __forceinline__ uint32_t lane_of_most(uint64_t finite) {
  if (!__any_sync(kAllLanes, finite > of_lane(finite, 0))) return 0;
  const uint64_t most = largest(finite);
  return __ffs(__ballot_sync(kAllLanes, finite == most)) - 1;
}

// The sum of what each thread has, for one warp.
template <class Number>
__device__ __forceinline__ uint64_t sum_of(const uint64_t* field, uint32_t count) {
  const uint32_t lane = threadIdx.x % kWarp;
  Number sum = 0;
  AOTI_DEBUG_UNROLL
  for (uint32_t i = 0; i < kBlockThreads; i += kWarp) {
    if (lane + i < count) sum += bits_as<Number>(field[lane + i]);
  }
  AOTI_DEBUG_UNROLL
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) sum += of_partner(sum, distance);
  return bits_as<uint64_t>(sum);
}

struct Extreme {
  uint64_t value, index;
};

// The smallest value, or the largest, and the first index of it. They are compared as a Number, which holds each
// exactly.
template <class Number, class Wide>
__device__ __forceinline__ Extreme extreme_of(const uint64_t* values, const uint64_t* indices, uint32_t count,
                                              bool smallest) {
  const uint32_t lane = threadIdx.x % kWarp;
  Number value = smallest ? Limits<Number>::highest : Limits<Number>::lowest;
  uint64_t index = kNoIndex;
  const auto look_at = [&](Number other, uint64_t other_index) {
    const bool first = comes_first(other, other_index, value, index, smallest);
    value = first ? other : value;
    index = first ? other_index : index;
  };
  AOTI_DEBUG_UNROLL
  for (uint32_t i = 0; i < kBlockThreads; i += kWarp) {
    if (lane + i < count) look_at(static_cast<Number>(bits_as<Wide>(values[lane + i])), indices[lane + i]);
  }
  AOTI_DEBUG_UNROLL
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    look_at(of_partner(value, distance), of_partner(index, distance));
  }
  return Extreme{bits_as<uint64_t>(static_cast<Wide>(value)), index};
}

// Brings the moments of a block's partials to the largest of their exponents.
__device__ __forceinline__ void rescale(Partial& partial, BlockMemory& memory) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint64_t of_warp = largest(static_cast<uint64_t>(partial.exponent));
  if (lane == 0) memory.exponent[threadIdx.x / kWarp] = static_cast<int64_t>(of_warp);
  __syncthreads();
  const uint64_t others = lane < kWarps ? static_cast<uint64_t>(memory.exponent[lane]) : 0;
  const auto exponent = static_cast<int64_t>(of_lane(largest(others), 0));
  const double factor = power_of_two(static_cast<int>(partial.exponent - exponent));
  partial.mean *= factor;
  partial.squares *= factor * factor;
  partial.exponent = exponent;
}

// Adds up the special values of all threads, and finds the first of each kind. Few tensors have any.
__device__ __noinline__ void reduce_specials(uint64_t nan, uint64_t pos_inf, uint64_t neg_inf, uint64_t nan_index,
                                             uint64_t pos_inf_index, uint64_t neg_inf_index, uint32_t count) {
  BlockMemory& memory = block_memory();
  const uint32_t thread = threadIdx.x, warp = thread / kWarp;
  uint64_t (*const fields)[kBlockThreads] = memory.fields;
  const uint64_t counts[kSpecials] = {nan, pos_inf, neg_inf};
  const uint64_t indices[kSpecials] = {nan_index, pos_inf_index, neg_inf_index};
  AOTI_DEBUG_UNROLL
  for (uint32_t kind = 0; kind < kSpecials; ++kind) {
    fields[kind][thread] = counts[kind];
    fields[kSpecials + kind][thread] = counts[kind] == 0 ? kNoIndex : indices[kind];
  }
  __syncthreads();
  uint64_t total = 0;
  if (warp < kSpecials) {
    total = sum_of<uint64_t>(fields[warp], count);
  } else if (warp < 2 * kSpecials) {
    total = extreme_of<uint64_t, uint64_t>(fields[warp], fields[warp], count, true).value;
  }
  if (thread % kWarp == 0 && warp < 2 * kSpecials) (&memory.total.nan)[warp] = total;
  __syncthreads();
}

// From what the first `count` threads have put there to the total: each number is one warp's work, several short chains
// of instructions side by side. Called, since its registers would otherwise be taken from what reads the tensor.
template <class Number, class Wide, bool kCounted>
__device__ __noinline__ void sum_up(uint32_t count) {
  BlockMemory& memory = block_memory();
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint64_t (*const fields)[kBlockThreads] = memory.fields;
  uint64_t* const totals = memory.totals;
  if (kCounted && warp < kFinite) {
    const uint64_t total = sum_of<double>(fields[warp], count);
    if (lane == 0) totals[warp] = total;
  } else if (warp == kHash || (kCounted && warp < kHash)) {
    const uint64_t total = sum_of<uint64_t>(fields[warp], count);
    if (lane == 0) totals[warp] = total;
  } else if (kCounted && warp <= kMax) {
    const uint32_t index = warp + kMinIndex - kMin;
    const Extreme found = extreme_of<Number, Wide>(fields[warp], fields[index], count, warp == kMin);
    if (lane == 0) {
      totals[warp] = found.value;
      totals[index] = found.index;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    Partial& total = memory.total;
    total.hash = totals[kHash];
    total.finite = total.zero = 0;
    if (kCounted && totals[kFinite] != 0) {
      total.finite = totals[kFinite];
      total.zero = totals[kZero];
      total.min = totals[kMin];
      total.max = totals[kMax];
      total.min_index = totals[kMinIndex];
      total.max_index = totals[kMaxIndex];
      set_moments(total, memory.pivot, bits_as<double>(totals[kSum]), bits_as<double>(totals[kSquares]));
    }
  }
  __syncwarp();
}

// Leaves the sum of the partials of the block's first `count` threads in `memory.total`, for the first warp to read;
// those of the other threads must be empty. Moments are summed by the deviations from the mean of a part that is as
// large as any.
template <class Type>
__device__ __forceinline__ void reduce_block(Partial& partial, uint32_t count, BlockMemory& memory) {
  using Wide = typename Type::Wide;
  const uint32_t thread = threadIdx.x, warp = thread / kWarp, lane = thread % kWarp;
  if constexpr (Type::counted) {
    if (partial.finite == 0) partial.mean = partial.squares = 0;
    if constexpr (Type::scaled) rescale(partial, memory);
    const uint32_t most = lane_of_most(partial.finite);
    const uint64_t finite = of_lane(partial.finite, most);
    const double mean = of_lane(partial.mean, most);
    if (lane == 0) {
      memory.finite[warp] = finite;
      memory.mean[warp] = mean;
    }
  }
  if (__syncthreads_or((partial.nan | partial.pos_inf | partial.neg_inf) != 0)) {
    reduce_specials(partial.nan, partial.pos_inf, partial.neg_inf, partial.nan_index, partial.pos_inf_index,
                    partial.neg_inf_index, count);
  } else if (thread == 0) {
    memory.total.nan = memory.total.pos_inf = memory.total.neg_inf = 0;
  }
  uint64_t (*const fields)[kBlockThreads] = memory.fields;
  if constexpr (Type::counted) {
    const double pivot = memory.mean[lane_of_most(lane < kWarps ? memory.finite[lane] : 0)];
    const double deviation = partial.mean - pivot;
    const double sum = static_cast<double>(partial.finite) * deviation;
    fields[kSum][thread] = bits_as<uint64_t>(sum);
    fields[kSquares][thread] = bits_as<uint64_t>(multiply_add(sum, deviation, partial.squares));
    fields[kFinite][thread] = partial.finite;
    fields[kZero][thread] = partial.zero;
    const bool none = partial.finite == 0;
    fields[kMin][thread] = none ? bits_as<uint64_t>(Limits<Wide>::highest) : partial.min;
    fields[kMax][thread] = none ? bits_as<uint64_t>(Limits<Wide>::lowest) : partial.max;
    fields[kMinIndex][thread] = none ? kNoIndex : partial.min_index;
    fields[kMaxIndex][thread] = none ? kNoIndex : partial.max_index;
    if (thread == 0) {
      memory.pivot = pivot;
      memory.total.exponent = Type::scaled ? partial.exponent : Moments::unit_exponent;
    }
  }
  fields[kHash][thread] = partial.hash;
  __syncthreads();
  sum_up<typename Type::Number, typename Type::Wide, Type::counted>(count);
}

__device__ __forceinline__ uint32_t word_of(const Partial& partial, uint32_t number) {
  uint32_t word;
  __builtin_memcpy(&word, reinterpret_cast<const char*>(&partial) + number * sizeof(word), sizeof(word));
  return word;
}

// The first warp sends a block's total to the last block of the tensor. The mailbox has room for a word of each block,
// then for the next word of each, and is empty: all 0. Each word goes with a 1 in its upper half.
__device__ __forceinline__ void send(const Partial& total, uint64_t* mailbox, uint32_t block, uint32_t n_blocks) {
  volatile uint64_t* const words = mailbox;
  words[threadIdx.x * n_blocks + block] = with_ticket(word_of(total, threadIdx.x), 1);
}

// Waits for the words of so many blocks, and empties the mailbox. Blocks begin in the order of their numbers, and only
// the last one of a tensor waits: for blocks that have begun before it, and that wait for none.
__device__ __forceinline__ void receive_words(uint64_t* mailbox, uint32_t n_blocks, uint32_t count,
                                              uint32_t (*received)[kMaxReceived]) {
  constexpr uint32_t kOfWarp = kPartialWords / kWarps, kGroups = kMaxReceived / kWarp;
  const uint32_t first_word = threadIdx.x / kWarp * kOfWarp, lane = threadIdx.x % kWarp;
  volatile uint64_t* const words = mailbox;
  uint64_t got[kGroups][kOfWarp];
  bool missing;
  do {
    missing = false;
    AOTI_DEBUG_UNROLL
    for (uint32_t group = 0; group < kGroups; ++group) {
      const uint32_t block = group * kWarp + lane;
      AOTI_DEBUG_UNROLL
      for (uint32_t k = 0; k < kOfWarp; ++k) {
        if (block < count) got[group][k] = words[(first_word + k) * n_blocks + block];
      }
    }
    AOTI_DEBUG_UNROLL
    for (uint32_t group = 0; group < kGroups; ++group) {
      AOTI_DEBUG_UNROLL
      for (uint32_t k = 0; k < kOfWarp; ++k) missing |= group * kWarp + lane < count && got[group][k] >> 32 == 0;
    }
  } while (__any_sync(kAllLanes, missing));
  AOTI_DEBUG_UNROLL
  for (uint32_t group = 0; group < kGroups; ++group) {
    const uint32_t block = group * kWarp + lane;
    AOTI_DEBUG_UNROLL
    for (uint32_t k = 0; k < kOfWarp; ++k) {
      if (block >= count) continue;
      words[(first_word + k) * n_blocks + block] = 0;
      received[first_word + k][block] = static_cast<uint32_t>(got[group][k]);
    }
  }
}

// What blocks of a tensor have sent, of so many of them from `first`: to each thread that of one of them. The thread
// behind them has the total of the blocks before them.
__device__ __forceinline__ Partial receive(uint64_t* mailbox, uint32_t n_blocks, uint32_t first, uint32_t count,
                                           BlockMemory& memory) {
  Partial partial{};
  __syncthreads();
  receive_words(mailbox + first, n_blocks, count, memory.received);
  __syncthreads();
  if (threadIdx.x < count) {
    uint32_t words[kPartialWords];
    AOTI_DEBUG_UNROLL
    for (uint32_t i = 0; i < kPartialWords; ++i) words[i] = memory.received[i][threadIdx.x];
    __builtin_memcpy(&partial, words, sizeof(words));
  } else if (first != 0 && threadIdx.x == count) {
    partial = memory.total;
  }
  return partial;
}

}  // namespace aoti_debug::cuda
