// What one stream's comparisons of guards reported: pinned host memory that the device writes.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "driver.h"
#include "guard_jobs.h"
#include "kernels.h"

namespace aoti_debug::cuda {

class GuardReports {
 public:
  // nullptr where memory is short.
  static std::unique_ptr<GuardReports> create(CUstream stream) {
    constexpr size_t bytes = kGuardReports * sizeof(GuardReport);
    std::unique_ptr<GuardReports> made(new GuardReports);
    made->reports_ = static_cast<GuardReport*>(allocate_pinned(bytes));
    if (made->reports_ == nullptr) return nullptr;
    memset(made->reports_, 0, bytes);
    made->device_reports_ = device_address(made->reports_);
    made->counter_ = allocate(kCounterBytes);
    const bool usable = made->device_reports_ != 0 && made->counter_ != 0 &&
                        cuMemsetD32Async(made->counter_, 0, kCounterBytes / sizeof(uint32_t), stream) == CUDA_SUCCESS;
    if (usable) return made;
    if (made->counter_ != 0) cuMemFree(made->counter_);
    cuMemFreeHost(made->reports_);
    return nullptr;
  }

  // A comparison of some of a launch's guards, to be enqueued.
  GuardCheckJob job(const GuardedLaunch& launch, const GuardedMemory* memories, uint32_t count) const {
    GuardCheckJob made{device_reports_, counter_, launch, std::min(count, kGuardsPerJob), {}};
    memcpy(made.memories, memories, made.count * sizeof(memories[0]));
    return made;
  }

  // Comparisons have been enqueued that nobody has waited for since.
  bool owes = false;

  // Reports that are there, oldest first.
  int take(GuardDamage* damages, int capacity) {
    int taken = 0;
    while (taken < capacity && taken_ < kGuardReports && has_arrived(taken_)) {
      damages[taken++] = reports_[taken_++].damage;
    }
    return taken;
  }

 private:
  static constexpr size_t kCounterBytes = 256;

  GuardReports() = default;

  bool has_arrived(uint32_t number) const {
    return __atomic_load_n(&reports_[number].ticket, __ATOMIC_ACQUIRE) == number + 1;
  }

  GuardReport* reports_ = nullptr;
  CUdeviceptr device_reports_ = 0;
  CUdeviceptr counter_ = 0;
  uint32_t taken_ = 0;
};

// Runs on a stream what guards need, in the current context.
class GuardKernels {
 public:
  explicit GuardKernels(Kernels* kernels) : kernels_(kernels) {}

  bool fill(CUstream stream, const GuardedMemory& memory, uint8_t poison) const {
    GuardFillJob job{memory, poison * 0x0101010101010101u};
    const uint64_t blocks = (guarded_bytes(memory.bytes) / 8 + kGuardThreads - 1) / kGuardThreads;
    return launch("aoti_debug_fill_guarded", static_cast<uint32_t>(std::min<uint64_t>(blocks, kMaxBlocks)), stream,
                  &job);
  }

  // `reports` are made when they are first needed.
  bool check(CUstream stream, std::unique_ptr<GuardReports>* reports, const GuardedLaunch& launched,
             const GuardedMemory* memories, uint32_t count) const {
    if (*reports == nullptr) *reports = GuardReports::create(stream);
    if (*reports == nullptr) return false;
    for (uint32_t done = 0; done < count; done += kGuardsPerJob) {
      GuardCheckJob job = (*reports)->job(launched, memories + done, count - done);
      if (!launch("aoti_debug_check_guards", 2 * job.count, stream, &job)) return false;
      (*reports)->owes = true;
    }
    return true;
  }

 private:
  static constexpr uint32_t kMaxBlocks = 1024;

  bool launch(const char* name, uint32_t blocks, CUstream stream, void* job) const {
    void* arguments[] = {job};
    const CUfunction function = kernels_->get("Guards", name).function;
    return function != nullptr &&
           cuLaunchKernel(function, blocks, 1, 1, kGuardThreads, 1, 1, 0, stream, arguments, nullptr) == CUDA_SUCCESS;
  }

  Kernels* kernels_;
};

}  // namespace aoti_debug::cuda
