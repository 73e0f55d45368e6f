#include "statistics_launch.h"

#include <string_view>

#include "stream_state.h"

namespace aoti_debug::cuda {
namespace {

const Kernels::Kernel& kernel_of(StreamState& mine, const char* module) {
  if (mine.module != module || mine.kernel->function == nullptr)
    mine.kernel = &state().kernels.get(module, "aoti_debug_statistics");
  mine.module = module;
  return *mine.kernel;
}

// Those that have the module of the first, which has one.
void launch_alike(CUstream stream, StreamState& mine, bool hashed, const StatisticsScratch& scratch,
                  StatisticsRequest* begin, StatisticsRequest* end) {
  const char* const module = begin->module;
  const Kernels::Kernel& kernel = kernel_of(mine, module);
  BatchBuilder builder(hashed, mine.most_blocks);
  StatisticsRequest* added[StatisticsBatch::kMaxTensors];
  for (StatisticsRequest* each = begin; each != end; ++each) {
    if (each->module != module || !builder.add(each->job, each->layout.dims)) continue;
    added[builder.batch().n_tensors - 1] = each;
    each->module = nullptr;
  }
  builder.use(scratch);
  std::string_view why = kernel.error;
  if (kernel.function != nullptr) {
    const Grid grid = builder.divide();
    const auto launch = kernel.waits && scratch.replays == 0 ? launch_early : launch_kernel;
    if (launch(kernel.function, grid, stream, &builder.batch())) return;
    why = "its statistics could not be enqueued";
  }
  for (uint32_t i = 0; i < builder.batch().n_tensors; ++i) added[i]->pending.skipped = why;
}

}  // namespace

void launch_statistics(CUstream stream, StreamState& mine, bool hashed, const StatisticsScratch& scratch,
                       StatisticsRequest* begin, StatisticsRequest* end) {
  for (; begin != end; ++begin) {
    while (begin->module != nullptr) launch_alike(stream, mine, hashed, scratch, begin, end);
  }
}

}  // namespace aoti_debug::cuda
