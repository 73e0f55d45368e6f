// The kernels that fill guards and compare them.
#include "guard_jobs.h"

namespace aoti_debug::cuda {

__device__ __forceinline__ uint64_t* guarded_words(const GuardedMemory& memory) {
  return reinterpret_cast<uint64_t*>(memory.data - guard_bytes(memory.bytes));
}

// Writes `word`, without its first `skip` bytes.
__device__ __forceinline__ void store(uint64_t* to, uint64_t word, uint64_t skip) {
  if (skip == 0) {
    *to = word;
    return;
  }
  auto* bytes = reinterpret_cast<uint8_t*>(to);
  for (uint64_t i = skip; i < 8; ++i) bytes[i] = static_cast<uint8_t>(word >> (8 * i));
}

__device__ __forceinline__ void fill_zone_word(uint64_t* words, const Zone& zone, uint64_t index) {
  store(words + index, guard_word(index), index * 8 < zone.begin ? zone.begin - index * 8 : 0);
}

// Threads of all blocks share the words of the allocation. The buffer's words go first to where a word is of both.
__device__ __forceinline__ void fill_guarded(const GuardFillJob& job) {
  const uint64_t bytes = job.memory.bytes;
  const Zone before = zone_before(bytes);
  const Zone after = zone_after(bytes);
  uint64_t* words = guarded_words(job.memory);
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; at < after.end / 8; at += step) {
    if (at < before.end / 8) {
      fill_zone_word(words, before, at);
      continue;
    }
    if (at * 8 < after.begin) words[at] = job.poison;
    if (at >= after.begin / 8) fill_zone_word(words, after, at);
  }
}

// Puts what is wrong into a report, if there is one left. For one thread.
__device__ __forceinline__ void report_damage(const GuardCheckJob& job, const GuardedMemory& memory, const Zone& zone,
                                              uint32_t first, uint32_t last, uint32_t damaged) {
  const uint32_t number = atomicAdd(reinterpret_cast<uint32_t*>(job.counter), 1u);
  if (number >= kGuardReports) return;
  GuardReport* report = reinterpret_cast<GuardReport*>(job.reports) + number;
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(guarded_words(memory)) + zone.begin;
  const int64_t origin = static_cast<int64_t>(zone.begin) - static_cast<int64_t>(guard_bytes(memory.bytes));
  GuardDamage& damage = report->damage;
  damage.call = job.launch.call;
  damage.launch = job.launch.launch;
  damage.allocation = memory.allocation;
  damage.kind = static_cast<uint8_t>(job.launch.kind);
  damage.reserved[0] = damage.reserved[1] = damage.reserved[2] = 0;
  damage.data = memory.data;
  damage.bytes = memory.bytes;
  damage.first = origin + first;
  damage.last = origin + last;
  damage.damaged = damaged;
  for (uint32_t i = 0; i < sizeof(damage.found); ++i) {
    damage.found[i] = first + i < zone.end - zone.begin ? bytes[first + i] : 0;
  }
  __threadfence_system();
  *reinterpret_cast<volatile uint32_t*>(&report->ticket) = number + 1;
}

// A block compares one zone, reports what is wrong and mends it.
__device__ __forceinline__ void check_guards(const GuardCheckJob& job) {
  __shared__ uint32_t first;  // offsets in the zone
  __shared__ uint32_t last;
  __shared__ uint32_t damaged;
  const GuardedMemory& memory = job.memories[blockIdx.x / 2];
  const Zone zone = blockIdx.x % 2 == 0 ? zone_before(memory.bytes) : zone_after(memory.bytes);
  uint64_t* words = guarded_words(memory);
  if (threadIdx.x == 0) {
    first = ~0u;
    last = 0;
    damaged = 0;
  }
  __syncthreads();
  for (uint64_t at = zone.begin / 8 + threadIdx.x; at < zone.end / 8; at += blockDim.x) {
    const uint64_t differs = (words[at] ^ guard_word(at)) & zone.mask(at);
    for (uint32_t byte = 0; differs != 0 && byte < 8; ++byte) {
      if ((differs >> (8 * byte) & 0xff) == 0) continue;
      const auto offset = static_cast<uint32_t>(at * 8 + byte - zone.begin);
      atomicMin(&first, offset);
      atomicMax(&last, offset);
      atomicAdd(&damaged, 1u);
    }
  }
  __syncthreads();
  if (damaged == 0) return;
  if (threadIdx.x == 0) report_damage(job, memory, zone, first, last, damaged);
  __syncthreads();
  for (uint64_t at = zone.begin / 8 + threadIdx.x; at < zone.end / 8; at += blockDim.x) fill_zone_word(words, zone, at);
}

}  // namespace aoti_debug::cuda

extern "C" __global__ void __launch_bounds__(aoti_debug::cuda::kGuardThreads)
    aoti_debug_fill_guarded(const aoti_debug::cuda::GuardFillJob job) {
  aoti_debug::cuda::fill_guarded(job);
}
extern "C" __global__ void __launch_bounds__(aoti_debug::cuda::kGuardThreads)
    aoti_debug_check_guards(const aoti_debug::cuda::GuardCheckJob job) {
  aoti_debug::cuda::check_guards(job);
}
