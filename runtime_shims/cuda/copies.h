// Copies from the device that are on their way, each with the event that says when it has arrived.
#pragma once

#include <map>
#include <vector>

#include "driver.h"

namespace aoti_debug::cuda {

class Copies {
 public:
  // A copy's event, and a word of pinned memory that the device sets after it. After a fault an event tells nothing of
  // what came before; the word still does. nullptr where no memory is left for it.
  struct Copy {
    CUcontext context;
    CUevent event;
    uint32_t* arrived;
    CUdeviceptr device_arrived;
  };

  // Marks the end of what was enqueued on the stream of the current context. 0 where that fails.
  uint64_t add(CUstream stream) {
    const CUcontext context = current_context();
    std::vector<Copy>& spare = spare_[context];
    if (spare.empty() && !create(context, &spare)) return 0;
    const Copy copy = spare.back();
    spare.pop_back();
    if (copy.arrived != nullptr) {
      __atomic_store_n(copy.arrived, 0, __ATOMIC_RELAXED);
      cuMemsetD32Async(copy.device_arrived, 1, 1, stream);
    }
    if (cuEventRecord(copy.event, stream) != CUDA_SUCCESS) {
      spare.push_back(copy);
      return 0;
    }
    copies_.emplace(++last_, copy);
    return last_;
  }

  // Hands a copy over to the caller, who waits for it and gives it back. False: there is no such ticket.
  bool remove(uint64_t ticket, Copy* copy) {
    const auto found = copies_.find(ticket);
    if (found == copies_.end()) return false;
    *copy = found->second;
    copies_.erase(found);
    return true;
  }

  void give_back(const Copy& copy) { spare_[copy.context].push_back(copy); }

 private:
  static constexpr size_t kWords = 1024;

  bool create(CUcontext context, std::vector<Copy>* spare) {
    Copy copy{context, nullptr, nullptr, 0};
    const RelaxedCapture relaxed;
    if (cuEventCreate(&copy.event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS) return false;
    if (words_left_ == 0) {
      words_ = static_cast<uint32_t*>(allocate_pinned(kWords * sizeof(uint32_t)));
      words_left_ = words_ == nullptr ? 0 : kWords;
    }
    if (words_left_ > 0) {
      copy.arrived = &words_[--words_left_];
      copy.device_arrived = device_address(copy.arrived);
      if (copy.device_arrived == 0) copy.arrived = nullptr;
    }
    spare->push_back(copy);
    return true;
  }

  uint64_t last_ = 0;
  std::map<uint64_t, Copy> copies_;
  std::map<CUcontext, std::vector<Copy>> spare_;
  uint32_t* words_ = nullptr;  // the block that new words come from; blocks are kept until the process ends
  size_t words_left_ = 0;
};

// Whether the copy has arrived, once it has or never will.
inline bool wait(const Copies::Copy& copy) {
  const WithContext current(copy.context);
  const RelaxedCapture relaxed;
  if (cuEventSynchronize(copy.event) == CUDA_SUCCESS) return true;
  return copy.arrived != nullptr && __atomic_load_n(copy.arrived, __ATOMIC_ACQUIRE) == 1;
}

}  // namespace aoti_debug::cuda
