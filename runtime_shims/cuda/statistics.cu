// The kernels. make_ptx.py compiles this file once for each module of statistics.ptx:
//   -DAOTI_DEBUG_ELEMENT=Float32   aoti_debug_statistics, for one dtype
//   -DAOTI_DEBUG_GATHER            aoti_debug_gather_1, _2, _4, _8, _16: strided elements, written without gaps
#include "kernel_arguments.h"

namespace aoti_debug::cuda {

[[maybe_unused]] constexpr uint32_t kWarp = 32;
[[maybe_unused]] constexpr uint32_t kAllLanes = 0xffffffffu;
[[maybe_unused]] constexpr uint64_t kNoIndex = ~uint64_t(0);

// The value of the lane whose number differs by the bit `distance`.
__device__ __forceinline__ uint64_t of_partner(uint64_t value, uint32_t distance) {
  const uint32_t low = __shfl_xor_sync(kAllLanes, static_cast<uint32_t>(value), distance);
  const uint32_t high = __shfl_xor_sync(kAllLanes, static_cast<uint32_t>(value >> 32), distance);
  return uint64_t(high) << 32 | low;
}
__device__ __forceinline__ double of_partner(double value, uint32_t distance) {
  return bits_as<double>(of_partner(bits_as<uint64_t>(value), distance));
}

__device__ __forceinline__ uint64_t of_lane(uint64_t value, uint32_t lane) {
  const uint32_t low = __shfl_sync(kAllLanes, static_cast<uint32_t>(value), lane);
  const uint32_t high = __shfl_sync(kAllLanes, static_cast<uint32_t>(value >> 32), lane);
  return uint64_t(high) << 32 | low;
}
__device__ __forceinline__ double of_lane(double value, uint32_t lane) {
  return bits_as<double>(of_lane(bits_as<uint64_t>(value), lane));
}

// Of the values of the warp's first `count` lanes, for these.
__device__ __forceinline__ uint64_t largest(uint64_t value, uint32_t count) {
  AOTI_DEBUG_ROLL
  for (uint32_t distance = 1; distance < count; distance *= 2) {
    const uint64_t other = of_partner(value, distance);
    value = value < other ? other : value;
  }
  return value;
}

// A lane whose partial is of as many finite values as any of the first `count`.
__device__ __forceinline__ uint32_t lane_of_most(uint64_t finite, uint32_t count) {
  if (!__any_sync(kAllLanes, finite > of_lane(finite, 0))) return 0;
  const uint64_t most = largest(finite, count);
  return __ffs(__ballot_sync(kAllLanes, finite == most)) - 1;
}

// Sums the counts of one kind of special values, and finds the first index.
__device__ __forceinline__ void reduce_special(uint64_t& n, uint64_t& index, uint32_t count) {
  if (n == 0) index = kNoIndex;
  AOTI_DEBUG_ROLL
  for (uint32_t distance = 1; distance < count; distance *= 2) {
    const uint64_t other = of_partner(index, distance);
    n += of_partner(n, distance);
    index = other < index ? other : index;
  }
}

// Brings the moments of a warp's partials to the largest of their exponents.
__device__ __forceinline__ void rescale(Partial& partial, uint32_t count) {
  const uint64_t exponent = largest(static_cast<uint64_t>(partial.exponent), count);
  const double factor = power_of_two(static_cast<int>(partial.exponent - static_cast<int64_t>(exponent)));
  partial.mean *= factor;
  partial.squares *= factor * factor;
  partial.exponent = static_cast<int64_t>(exponent);
}

// Leaves the sum of the warp's first `count` partials in its first lanes; those of the other lanes must be empty. One
// warp is alone with this, so its time is that of its instructions one after the other: hence no branches by lane, and
// no divisions by a power of two. Moments are summed by the deviations from the mean of a part that is as large as any.
template <class Type>
__device__ __forceinline__ void reduce_warp(Partial& partial, uint32_t count) {
  if (__any_sync(kAllLanes, partial.hash != 0)) {
    AOTI_DEBUG_ROLL
    for (uint32_t distance = 1; distance < count; distance *= 2) partial.hash += of_partner(partial.hash, distance);
  }
  if constexpr (!Type::counted) return;
  if (__any_sync(kAllLanes, (partial.nan | partial.pos_inf | partial.neg_inf) != 0)) {
    reduce_special(partial.nan, partial.nan_index, count);
    reduce_special(partial.pos_inf, partial.pos_inf_index, count);
    reduce_special(partial.neg_inf, partial.neg_inf_index, count);
  }
  using Wide = typename Type::Wide;
  if (partial.finite == 0) {
    partial.min = bits_as<uint64_t>(Limits<Wide>::highest);
    partial.max = bits_as<uint64_t>(Limits<Wide>::lowest);
    partial.min_index = partial.max_index = kNoIndex;
    partial.mean = partial.squares = 0;
  }
  if constexpr (Type::scaled) rescale(partial, count);
  const double pivot = of_lane(partial.mean, lane_of_most(partial.finite, count));
  const double deviation = partial.mean - pivot;
  double sum = static_cast<double>(partial.finite) * deviation;
  double squares = multiply_add(sum, deviation, partial.squares);
  AOTI_DEBUG_ROLL
  for (uint32_t distance = 1; distance < count; distance *= 2) {
    partial.finite += of_partner(partial.finite, distance);
    partial.zero += of_partner(partial.zero, distance);
    sum += of_partner(sum, distance);
    squares += of_partner(squares, distance);
    const uint64_t min = of_partner(partial.min, distance), min_index = of_partner(partial.min_index, distance);
    const bool smaller = comes_first<Wide>(min, min_index, partial.min, partial.min_index, true);
    partial.min = smaller ? min : partial.min;
    partial.min_index = smaller ? min_index : partial.min_index;
    const uint64_t max = of_partner(partial.max, distance), max_index = of_partner(partial.max_index, distance);
    const bool larger = comes_first<Wide>(max, max_index, partial.max, partial.max_index, false);
    partial.max = larger ? max : partial.max;
    partial.max_index = larger ? max_index : partial.max_index;
  }
  if (partial.finite == 0) return;
  set_moments(partial, pivot, sum, squares);
  if constexpr (!Type::scaled) partial.exponent = Moments::unit_exponent;
}

// Leaves the sum of what the first `warps` warps have in the first warp, of the first `count` partials of each.
// `shared` has room for one of each warp.
template <class Type>
__device__ __forceinline__ void reduce_block(Partial& partial, uint32_t count, uint32_t warps, Partial* shared) {
  AOTI_DEBUG_ROLL
  for (uint32_t round = 0; round < 2; ++round) {
    reduce_warp<Type>(partial, round == 0 ? count : warps);
    if (round == 1 || warps == 1) return;
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = partial;
    __syncthreads();
    if (threadIdx.x >= kWarp) return;
    partial = threadIdx.x < warps ? shared[threadIdx.x] : Partial{};
  }
}

__device__ __forceinline__ Partial read_partial(const Partial* from) {
  uint64_t words[kPartialWords / 2];
  const volatile uint64_t* source = reinterpret_cast<const volatile uint64_t*>(from);
  AOTI_DEBUG_UNROLL
  for (uint32_t i = 0; i < kPartialWords / 2; ++i) words[i] = source[i];
  Partial partial;
  __builtin_memcpy(&partial, words, sizeof(words));
  return partial;
}

// Waits until the work before this kernel is done and what it has written is seen: of kernels that may begin earlier.
__device__ __forceinline__ void wait_for_earlier_work() {
#if defined(__CUDA_ARCH__)
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The blocks that work on one tensor.
struct Share {
  uint32_t block;  // the calling one, from 0
  uint32_t n_blocks;
};

// Hashes those of the calling thread's chunks that come in groups of kAtOnce, as many loads on their way at a time.
// `read(number)` reads a chunk. Returns the number of the first chunk that is left.
template <uint32_t kAtOnce, class Number, class Read>
__device__ __forceinline__ uint64_t hash_groups(uint64_t first, uint64_t step, uint64_t end, const Number& number_of,
                                                const Read& read, uint64_t* hash) {
  uint64_t at = first;
  AOTI_DEBUG_ROLL
  for (; at + (kAtOnce - 1) * step < end; at += kAtOnce * step) {
    Chunk chunks[kAtOnce];
    uint64_t numbers[kAtOnce];
    AOTI_DEBUG_UNROLL
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      numbers[k] = number_of(at + k * step);
      chunks[k] = read(numbers[k]);
    }
    AOTI_DEBUG_UNROLL
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      *hash += hash_term(chunks[k].words[0], 2 * numbers[k]) + hash_term(chunks[k].words[1], 2 * numbers[k] + 1);
    }
  }
  return at;
}

// The same for what is contiguous, or interleaved and thus of whole chunks only; nothing for other tensors.
template <uint32_t kBytes>
__device__ __forceinline__ uint64_t hash_whole(const StatisticsBatch& batch, const StatisticsJob& job, uint64_t first,
                                               uint64_t step, uint64_t whole, uint64_t* hash) {
  constexpr uint32_t kAtOnce = kBytes == 4 ? 4 : kBytes == 1 ? 1 : 2;  // as many as there are registers for
  if (job.interleaving.rows == 0) {
    const auto read = [&job](uint64_t number) { return read_chunk(job.elements.data + number * kChunkBytes); };
    return hash_groups<4>(first, step, whole, [](uint64_t nth) { return nth; }, read, hash);
  }
  const int64_t stride = batch.dims[job.elements.first_dim + job.elements.n_dims - 1].stride;
  const auto read = [&](uint64_t number) {
    const Position at = locate(job.elements, batch.dims, number * (kChunkBytes / kBytes));
    return gather_apart<kBytes>(at.address, stride);
  };
  const auto number_of = [&job](uint64_t nth) { return chunk_number(job.interleaving, nth); };
  return hash_groups<kAtOnce>(first, step, job.chunks, number_of, read, hash);
}

__device__ __forceinline__ uint32_t ticket_of(const StatisticsBatch& batch, const StatisticsJob& job) {
  uint32_t ticket = job.ticket;
  if (batch.replays != 0) ticket = *reinterpret_cast<const volatile uint32_t*>(batch.replays);
  return ticket;
}

__device__ __forceinline__ StatisticsSlot& slot_of(const StatisticsBatch& batch, const StatisticsJob& job,
                                                   uint32_t ticket) {
  const uint64_t number = ticket & batch.slot_mask;
  return *reinterpret_cast<StatisticsSlot*>(job.slot + number * slot_bytes(job.shown != 0));
}

// The calling thread's share. Whole chunks of a contiguous tensor go first, with one read ahead.
template <class Type>
__device__ __forceinline__ Partial accumulate(const StatisticsBatch& batch, const StatisticsJob& job, Share share) {
  constexpr uint32_t per_chunk = kChunkBytes / Type::bytes;
  const uint64_t step = static_cast<uint64_t>(share.n_blocks) * blockDim.x;
  const uint64_t first = static_cast<uint64_t>(share.block) * blockDim.x + threadIdx.x;
  const uint64_t chunks = job.chunks, elements = job.elements.count, data = job.elements.data;
  const uint64_t whole = job.elements.chunked ? elements / per_chunk : 0;
  const bool hashed = batch.hashed;
  const Interleaving order = !Type::counted || rises(job.interleaving, step) ? job.interleaving : Interleaving{};
  Accumulator<Type> accumulator;
  uint64_t hash = 0;
  uint32_t tick = 0;
  uint64_t at = first;
  if constexpr (!Type::counted) at = hash_whole<Type::bytes>(batch, job, first, step, whole, &hash);
  Chunk next{{0, 0}};
  if (at < whole) next = read_chunk(data + at * kChunkBytes);
  AOTI_DEBUG_ROLL
  for (; at < whole; at += step, tick += per_chunk) {
    const Chunk chunk = next;
    if (at + step < whole) next = read_chunk(data + (at + step) * kChunkBytes);
    if (hashed) hash += hash_term(chunk.words[0], 2 * at) + hash_term(chunk.words[1], 2 * at + 1);
    accumulator.add_chunk(chunk, tick);
  }
  AOTI_DEBUG_ROLL
  for (; at < chunks; at += step, tick += per_chunk) {
    const uint64_t number = chunk_number(order, at);
    const uint32_t count = elements_in_chunk<Type::bytes>(elements, number);
    const Chunk chunk = gather_chunk<Type::bytes>(job.elements, batch.dims, number * per_chunk, count);
    hash += hash_term(chunk.words[0], 2 * number);
    if (count * Type::bytes > 8) hash += hash_term(chunk.words[1], 2 * number + 1);
    accumulator.add_elements(chunk, count, tick);
    if (job.shown) {
      uint64_t* values = slot_of(batch, job, ticket_of(batch, job)).values + 2 * number;
      values[0] = chunk.words[0];
      values[1] = chunk.words[1];
    }
  }
  Partial partial = accumulator.partial(order, first, step);
  partial.hash = hash;
  return partial;
}

// One launch does it all: every block leaves its result, and the tensor's last block to do so merges them.
template <class Type>
__device__ __forceinline__ void statistics(const StatisticsBatch& batch) {
  __shared__ Partial shared[kBlockThreads / kWarp];
  __shared__ uint32_t is_last;
  wait_for_earlier_work();
  uint32_t index = 0;
  AOTI_DEBUG_ROLL
  while (blockIdx.x >= batch.first_block[index + 1]) ++index;
  const StatisticsJob& job = batch.jobs[index];
  const uint32_t first_block = batch.first_block[index];
  const Share share{blockIdx.x - first_block, batch.first_block[index + 1] - first_block};
  Partial* partials = reinterpret_cast<Partial*>(batch.partials) + first_block;
  uint32_t* counter = reinterpret_cast<uint32_t*>(batch.counters) + index;
  Partial partial = accumulate<Type>(batch, job, share);
  uint32_t count = job.chunks < kWarp ? static_cast<uint32_t>(job.chunks) : kWarp;
  uint32_t warps = blockDim.x / kWarp;
  AOTI_DEBUG_ROLL
  for (bool merging = share.n_blocks == 1;; merging = true) {
    reduce_block<Type>(partial, count, warps, shared);
    if (merging) break;
    if (threadIdx.x == 0) {
      partials[share.block] = partial;
      __threadfence();
      is_last = atomicAdd(counter, 1u) == share.n_blocks - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    count = share.n_blocks < kWarp ? share.n_blocks : kWarp;
    if (share.n_blocks <= kWarp) warps = 1;
    partial = threadIdx.x < share.n_blocks ? read_partial(partials + threadIdx.x) : Partial{};
    AOTI_DEBUG_ROLL
    for (uint32_t i = threadIdx.x + blockDim.x; i < share.n_blocks; i += blockDim.x)
      merge<Type>(partial, read_partial(partials + i));
  }
  if (job.shown) __threadfence_system();
  if (threadIdx.x == 0) {
    shared[0] = partial;
    *counter = 0;
  }
  __syncthreads();
  if (threadIdx.x >= kPartialWords) return;
  uint32_t word;
  __builtin_memcpy(&word, reinterpret_cast<const char*>(shared) + threadIdx.x * sizeof(word), sizeof(word));
  const uint32_t ticket = ticket_of(batch, job);
  volatile uint64_t* words = slot_of(batch, job, ticket).words;
  words[threadIdx.x] = with_ticket(word, ticket);
}

template <uint32_t kBytes>
__device__ __forceinline__ void gather(const GatherJob& job) {
  constexpr uint32_t per_chunk = kChunkBytes / kBytes;
  const uint64_t chunks = (job.count + per_chunk - 1) / per_chunk;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  Chunk* target = reinterpret_cast<Chunk*>(job.target);
  AOTI_DEBUG_ROLL
  for (uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < chunks; at += step) {
    const uint32_t count = elements_in_chunk<kBytes>(job.count, at);
    target[at] = gather_chunk<kBytes>(job.elements, job.dims, job.first + at * per_chunk, count);
  }
}

}  // namespace aoti_debug::cuda

#if defined(AOTI_DEBUG_ELEMENT)
extern "C" __global__ void __launch_bounds__(aoti_debug::cuda::kBlockThreads, 4)
    aoti_debug_statistics(const aoti_debug::cuda::StatisticsBatch batch) {
  using namespace aoti_debug::cuda;
  statistics<AOTI_DEBUG_ELEMENT>(batch);
}
#endif

#if defined(AOTI_DEBUG_GATHER)
#define AOTI_DEBUG_GATHER_KERNEL(BYTES)                                         \
  extern "C" __global__ void __launch_bounds__(aoti_debug::cuda::kBlockThreads) \
      aoti_debug_gather_##BYTES(const aoti_debug::cuda::GatherJob job) {        \
    aoti_debug::cuda::gather<BYTES>(job);                                       \
  }
AOTI_DEBUG_GATHER_KERNEL(1)
AOTI_DEBUG_GATHER_KERNEL(2)
AOTI_DEBUG_GATHER_KERNEL(4)
AOTI_DEBUG_GATHER_KERNEL(8)
AOTI_DEBUG_GATHER_KERNEL(16)
#endif
