// The statistics of the runtime's CPU half behind a plain function, for ctypes.
#include "device/device.h"
#include "statistics/statistics.h"

extern "C" __attribute__((visibility("default"))) void harness_host_statistics(
    const aoti_debug::device::TensorView* view, aoti_debug::device::StatsResult* result) {
  *result = aoti_debug::device::StatsResult{};
  aoti_debug::host_statistics(*view, &result->stats);
}
