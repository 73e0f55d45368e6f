// How much may still be saved.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace aoti_debug {

struct SaveLimits {
  uint64_t bytes;
  uint64_t files;
  uint64_t tensor_bytes;
  uint64_t keep_free_bytes;  // on the disk
};

class SaveBudget {
 public:
  SaveBudget(std::string directory, const SaveLimits& limits);

  const SaveLimits& limits() const { return limits_; }

  // Takes a file of so many bytes from the budget. False where there is none left: then the saving has stopped.
  bool reserve(uint64_t bytes);
  void give_back(uint64_t bytes);

  // Without memory for it the reason is that there is none.
  void stop(std::string_view reason) noexcept;
  bool has_stopped() const { return stopped_.load(std::memory_order_relaxed); }

  // What stopped the saving, once; otherwise "".
  std::string take_stop_reason();

 private:
  const std::string directory_;
  const SaveLimits limits_;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // guards what follows
  uint64_t n_bytes_ = 0;
  uint64_t n_files_ = 0;
  std::string stop_reason_;
};

}  // namespace aoti_debug
