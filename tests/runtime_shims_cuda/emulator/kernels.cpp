// The kernels of statistics.cu, guards.cu and graphs.cu, compiled for the host.
#include "block.h"

inline void __syncthreads() { emulator::Block::current().wait_for_block(); }
inline bool __syncthreads_or(bool value) { return emulator::Block::current().any_of_block(value); }
inline void __threadfence_system() {}
inline uint32_t atomicAdd(uint32_t* address, uint32_t value) {
  const uint32_t old = *address;
  *address += value;
  return old;
}
inline void atomicMin(uint32_t* address, uint32_t value) { *address = value < *address ? value : *address; }
inline void atomicMax(uint32_t* address, uint32_t value) { *address = value > *address ? value : *address; }
inline uint32_t __shfl_sync(uint32_t, uint32_t value, uint32_t lane) {
  return emulator::Block::current().shuffle(value, lane);
}
inline uint32_t __shfl_xor_sync(uint32_t, uint32_t value, uint32_t distance) {
  return emulator::Block::current().shuffle(value, (threadIdx.x % emulator::kLanes) ^ distance);
}
inline bool __any_sync(uint32_t, bool value) { return emulator::Block::current().ballot(value) != 0; }
inline void __syncwarp() { emulator::Block::current().ballot(true); }
inline uint32_t __ballot_sync(uint32_t, bool value) { return emulator::Block::current().ballot(value); }
inline uint32_t __ffs(uint32_t value) { return static_cast<uint32_t>(__builtin_ffs(static_cast<int>(value))); }

#include <cstring>
#include <string>

#include "cuda/graphs.cu"
#include "cuda/guards.cu"
#include "cuda/statistics.cu"
#include "kernels.h"

namespace emulator {

using namespace aoti_debug::cuda;

template <class Type>
void run_statistics(const void* job) {
  statistics<Type>(*static_cast<const StatisticsBatch*>(job));
}

template <uint32_t kBytes>
void run_gather(const void* job) {
  gather<kBytes>(*static_cast<const GatherJob*>(job));
}

void run_fill_guarded(const void* job) { fill_guarded(*static_cast<const GuardFillJob*>(job)); }

void run_check_guards(const void* job) { check_guards(*static_cast<const GuardCheckJob*>(job)); }

void run_begin_replay(const void* job) { begin_replay(*static_cast<const ReplayJob*>(job)); }

void run_watch(const void* job) { watch(*static_cast<const WatchJob*>(job)); }

Kernel find_kernel(const std::string& module, const std::string& name) {
  if (name == "aoti_debug_statistics") {
#define KERNEL(TYPE, NUMBER) \
  if (module == #TYPE) return Kernel{run_statistics<TYPE>, sizeof(StatisticsBatch)};
    AOTI_DEBUG_ELEMENT_TYPES(KERNEL)
    AOTI_DEBUG_OPAQUE_TYPES(KERNEL)
#undef KERNEL
  }
  if (module == "Gather") {
    if (name == "aoti_debug_gather_1") return Kernel{run_gather<1>, sizeof(GatherJob)};
    if (name == "aoti_debug_gather_2") return Kernel{run_gather<2>, sizeof(GatherJob)};
    if (name == "aoti_debug_gather_4") return Kernel{run_gather<4>, sizeof(GatherJob)};
    if (name == "aoti_debug_gather_8") return Kernel{run_gather<8>, sizeof(GatherJob)};
    if (name == "aoti_debug_gather_16") return Kernel{run_gather<16>, sizeof(GatherJob)};
  }
  if (module == "Guards") {
    if (name == "aoti_debug_fill_guarded") return Kernel{run_fill_guarded, sizeof(GuardFillJob)};
    if (name == "aoti_debug_check_guards") return Kernel{run_check_guards, sizeof(GuardCheckJob)};
  }
  if (module == "Graphs") {
    if (name == "aoti_debug_begin_replay") return Kernel{run_begin_replay, sizeof(ReplayJob)};
    if (name == "aoti_debug_watch") return Kernel{run_watch, sizeof(WatchJob)};
  }
  return Kernel{nullptr, 0};
}

void launch(const Kernel& kernel, const void* argument, uint32_t blocks, uint32_t threads) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) Block(threads, [&] { kernel.body(argument); });
}

template <class Type>
void decode(const uint8_t* bytes, uint64_t count, double* numbers, int32_t* specials) {
  for (uint64_t i = 0; i < count; ++i) {
    Chunk chunk{{0, 0}};
    memcpy(&chunk, bytes + i * Type::bytes, Type::bytes);
    const auto raw = Type::raw(chunk, 0);
    specials[i] = Type::finite(raw) ? -1 : static_cast<int32_t>(Type::special(raw));
    numbers[i] = specials[i] >= 0 ? 0.0 : static_cast<double>(Type::number(raw));
  }
}

}  // namespace emulator

// Each element as a number (exact below 2^53), or which special value it is: 0 NaN, 1 +Inf, 2 -Inf; otherwise -1.
extern "C" __attribute__((visibility("default"))) int emulator_decode(int32_t scalar_type, const uint8_t* bytes,
                                                                      uint64_t count, double* numbers,
                                                                      int32_t* specials) {
  using namespace aoti_debug::cuda;
  switch (scalar_type) {
#define CASE(TYPE, NUMBER)                                   \
  case NUMBER:                                               \
    emulator::decode<TYPE>(bytes, count, numbers, specials); \
    return 0;
    AOTI_DEBUG_ELEMENT_TYPES(CASE)
#undef CASE
    default:
      return 1;
  }
}
