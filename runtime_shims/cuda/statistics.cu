// The kernels that measure tensors, and those that write strided elements without gaps.
#include "block_totals.h"
#include "kernel_arguments.h"

namespace aoti_debug::cuda {

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

// One launch does it all: every block sends what it has found to the tensor's last one, which merges that.
template <class Type>
__device__ __forceinline__ void statistics(const StatisticsBatch& batch) {
  BlockMemory& memory = block_memory();
  wait_for_earlier_work();
  uint32_t index = 0;
  AOTI_DEBUG_ROLL
  while (blockIdx.x >= batch.first_block[index + 1]) ++index;
  const StatisticsJob& job = batch.jobs[index];
  const uint32_t first_block = batch.first_block[index];
  const Share share{blockIdx.x - first_block, batch.first_block[index + 1] - first_block};
  uint64_t* const mailbox = reinterpret_cast<uint64_t*>(batch.mailboxes) + uint64_t(first_block) * kPartialWords;
  Partial partial = accumulate<Type>(batch, job, share);
  const uint32_t count = job.chunks < kBlockThreads ? static_cast<uint32_t>(job.chunks) : kBlockThreads;
  reduce_block<Type>(partial, count, memory);
  if (share.n_blocks > 1) {
    if (threadIdx.x < kWarp) send(memory.total, mailbox, share.block, share.n_blocks);
    if (share.block + 1 != share.n_blocks) return;
    AOTI_DEBUG_ROLL
    for (uint32_t received = 0; received < share.n_blocks; received += kMaxReceived) {
      const uint32_t left = share.n_blocks - received, now = left < kMaxReceived ? left : kMaxReceived;
      partial = receive(mailbox, share.n_blocks, received, now, memory);
      reduce_block<Type>(partial, received == 0 ? now : now + 1, memory);
    }
  }
  if (job.shown) {
    __threadfence_system();
    __syncthreads();
  }
  if (threadIdx.x >= kPartialWords) return;
  const uint32_t ticket = ticket_of(batch, job);
  volatile uint64_t* words = slot_of(batch, job, ticket).words;
  words[threadIdx.x] = with_ticket(word_of(memory.total, threadIdx.x), ticket);
}

template <uint32_t kBytes>
__device__ __forceinline__ void gather(const GatherJob& job) {
  constexpr uint32_t per_chunk = kChunkBytes / kBytes;
  const uint64_t chunks = (job.count + per_chunk - 1) / per_chunk;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  auto* target = reinterpret_cast<Chunk*>(job.target);
  AOTI_DEBUG_ROLL
  for (uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < chunks; at += step) {
    const uint32_t count = elements_in_chunk<kBytes>(job.count, at);
    target[at] = gather_chunk<kBytes>(job.elements, job.dims, job.first + at * per_chunk, count);
  }
}

}  // namespace aoti_debug::cuda

// make_ptx.py moves each of these to a module of its own, as aoti_debug_statistics.
#define AOTI_DEBUG_STATISTICS_KERNEL(TYPE, NUMBER)                                         \
  extern "C" __global__ void __launch_bounds__(aoti_debug::cuda::kBlockThreads,            \
                                               aoti_debug::cuda::kBlocksPerMultiprocessor) \
      aoti_debug_statistics_##TYPE(const aoti_debug::cuda::StatisticsBatch batch) {        \
    aoti_debug::cuda::statistics<aoti_debug::cuda::TYPE>(batch);                           \
  }
AOTI_DEBUG_ELEMENT_TYPES(AOTI_DEBUG_STATISTICS_KERNEL)
AOTI_DEBUG_OPAQUE_TYPES(AOTI_DEBUG_STATISTICS_KERNEL)

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
