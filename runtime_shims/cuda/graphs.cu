// The kernels that a CUDA graph holds beside the model's, each of one thread.
#include "graph_jobs.h"
#include "partial_numbers.h"

namespace aoti_debug::cuda {

template <class Type>
__device__ __forceinline__ volatile Type& at_address(uint64_t address) {
  return *reinterpret_cast<volatile Type*>(address);
}

__device__ __forceinline__ void begin_replay(const ReplayJob& job) {
  const uint32_t replays = at_address<uint32_t>(job.replays) + 1;
  at_address<uint32_t>(job.replays) = replays;
  at_address<uint32_t>(job.count) = replays;
  at_address<uint32_t>(job.crumb) = job.value;
}

// The counts are kept in device memory, and stored in the record: reading host memory takes a microsecond.
__device__ __forceinline__ void watch(const WatchJob& job) {
  const Partial total = partial_in(*reinterpret_cast<const StatisticsSlot*>(job.slot));
  TensorStats stats{};
  stats.numel = job.numel;
  set_numbers(total, job.integer, &stats);
  WatchCounts& counts = *reinterpret_cast<WatchCounts*>(job.counts);
  CapturedWatch& record = *reinterpret_cast<CapturedWatch*>(job.record);
  record.evaluated = ++counts.evaluated;
  const uint32_t statistic = condition_holds(job.nodes, job.n_nodes, stats);
  if (statistic == WATCH_NUMBER) return;
  if (counts.hits == 0) {
    record.replay = at_address<uint32_t>(job.replays);
    record.statistic = statistic;
    record.stats = stats;
    record.nan_index = total.nan_index;
    record.pos_inf_index = total.pos_inf_index;
    record.neg_inf_index = total.neg_inf_index;
    __threadfence_system();
  }
  at_address<uint64_t>(reinterpret_cast<uint64_t>(&record.hits)) = ++counts.hits;
}

}  // namespace aoti_debug::cuda

extern "C" __global__ void aoti_debug_begin_replay(const aoti_debug::cuda::ReplayJob job) {
  aoti_debug::cuda::begin_replay(job);
}
extern "C" __global__ void aoti_debug_watch(const aoti_debug::cuda::WatchJob job) { aoti_debug::cuda::watch(job); }
