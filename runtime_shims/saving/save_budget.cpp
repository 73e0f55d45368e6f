#include "save_budget.h"

#include <sys/statvfs.h>

#include <new>
#include <utility>

namespace aoti_debug {
namespace {

// In MiB, what is needed rounded up and what is free rounded down.
std::string of_room(uint64_t bytes, uint64_t free_bytes) {
  return ": a file needs " + std::to_string((bytes >> 20) + 1) + " MiB, and " + std::to_string(free_bytes >> 20) +
         " MiB are free; fewer launches (--filter, --launch) need less";
}

}  // namespace

SaveBudget::SaveBudget(std::string directory, const SaveLimits& limits)
    : directory_(std::move(directory)), limits_(limits) {}

bool SaveBudget::reserve(uint64_t bytes) {
  struct statvfs disk;
  const bool known = statvfs(directory_.c_str(), &disk) == 0;
  const uint64_t free_bytes = known ? uint64_t{disk.f_bavail} * disk.f_frsize : UINT64_MAX;
  std::string reason;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (n_files_ >= limits_.files) {
      reason = "AOTI_DEBUG_MAX_FILES is reached";
    } else if (bytes > limits_.bytes || n_bytes_ > limits_.bytes - bytes) {
      reason = "AOTI_DEBUG_MAX_BYTES is reached";
    } else if (free_bytes == 0 || bytes > free_bytes) {
      reason = "the disk is full" + of_room(bytes, free_bytes);
    } else if (free_bytes - bytes < limits_.keep_free_bytes) {
      reason = "the disk would have less than AOTI_DEBUG_KEEP_FREE_BYTES left" + of_room(bytes, free_bytes);
    } else {
      ++n_files_;
      n_bytes_ += bytes;
      return true;
    }
  }
  stop(reason);
  return false;
}

void SaveBudget::give_back(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --n_files_;
  n_bytes_ -= bytes;
}

void SaveBudget::stop(std::string_view reason) noexcept {
  if (stopped_.exchange(true)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    stop_reason_ = reason;
  } catch (const std::bad_alloc&) {
    static constexpr std::string_view kShort = "out of memory";
    static_assert(kShort.size() <= 15, "a string has room for it in itself");
    stop_reason_ = kShort;
  }
}

std::string SaveBudget::take_stop_reason() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(stop_reason_, std::string());
}

}  // namespace aoti_debug
