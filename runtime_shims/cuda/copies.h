// Copies from the device that are on their way, each with the event that says when it has arrived.
#pragma once

#include <map>
#include <vector>

#include "driver.h"

namespace aoti_debug::cuda {

class Copies {
 public:
  // Marks the end of what was enqueued on the stream of the current context. 0 where that fails.
  uint64_t add(CUstream stream) {
    const CUcontext context = current_context();
    Copy copy{context, nullptr};
    std::vector<CUevent>& spare = spare_[context];
    if (!spare.empty()) {
      copy.event = spare.back();
      spare.pop_back();
    } else {
      const RelaxedCapture relaxed;
      const unsigned int flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
      if (cuEventCreate(&copy.event, flags) != CUDA_SUCCESS) return 0;
    }
    if (cuEventRecord(copy.event, stream) != CUDA_SUCCESS) {
      spare.push_back(copy.event);
      return 0;
    }
    copies_.emplace(++last_, copy);
    return last_;
  }

  struct Copy {
    CUcontext context;
    CUevent event;
  };

  // Hands a copy over to the caller, who waits for it and gives it back. False: there is no such ticket.
  bool remove(uint64_t ticket, Copy* copy) {
    const auto found = copies_.find(ticket);
    if (found == copies_.end()) return false;
    *copy = found->second;
    copies_.erase(found);
    return true;
  }

  void give_back(const Copy& copy) { spare_[copy.context].push_back(copy.event); }

 private:
  uint64_t last_ = 0;
  std::map<uint64_t, Copy> copies_;
  std::map<CUcontext, std::vector<CUevent>> spare_;
};

inline bool wait(const Copies::Copy& copy) {
  const WithContext current(copy.context);
  const RelaxedCapture relaxed;
  return cuEventSynchronize(copy.event) == CUDA_SUCCESS;
}

}  // namespace aoti_debug::cuda
