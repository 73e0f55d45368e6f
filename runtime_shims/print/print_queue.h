// Prints of a model, in order: those whose tensors are still on their way from a device wait, and what comes after
// them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "journal/launch_id.h"
#include "saving/staging.h"
#include "text/tensor_text.h"

namespace aoti_debug {

class Run;

// The elements of a printed tensor, which the device is copying.
struct ComingElements {
  size_t tensor;  // which of the print's
  StagedCopy copy;
  size_t bytes;
};

// One print.
struct PrintJob {
  std::string text;
  std::vector<PrintedTensor> tensors;
  std::vector<int64_t> integers;
  std::vector<ComingElements> coming;
  Run* run = nullptr;  // that records it; nullptr: none does
  LaunchId id{};
};

class PrintQueue {
 public:
  PrintQueue() = default;
  ~PrintQueue();  // after all prints
  PrintQueue(const PrintQueue&) = delete;
  PrintQueue& operator=(const PrintQueue&) = delete;

  // Has the device copy the elements.
  StagedCopy copy(void* stream, const device::TensorView& printed, size_t bytes) {
    return StagedCopy(&staging_, stream, printed, 0, bytes);
  }

  // Prints at once where nothing has to be waited for.
  void submit(PrintJob job);

  // Returns once everything that was submitted is printed.
  void drain();

 private:
  void work();
  void print(PrintJob& job);

  StagingPool staging_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<PrintJob> waiting_;
  std::thread printer_;
  bool printing_ = false;
  bool closing_ = false;
};

}  // namespace aoti_debug
