#include "staging.h"

namespace aoti_debug {

StagingPool::StagingPool() {
  large_.reserve(kLargeBuffers);
  free_large_.reserve(kLargeBuffers);
  free_small_.reserve(kSmallBuffers);
}

StagingPool::~StagingPool() {
  for (void* buffer : large_) device::free_staging(buffer);
  if (small_ != nullptr) device::free_staging(small_);
}

bool StagingPool::is_small(void* buffer) const {
  const uint8_t* at = static_cast<uint8_t*>(buffer);
  return small_ != nullptr && at >= small_ && at < small_ + kLargeBytes;
}

void* StagingPool::acquire(size_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (bytes <= kSmallBytes && small_ == nullptr && !exhausted_) {
    small_ = static_cast<uint8_t*>(device::allocate_staging(kLargeBytes));
    for (size_t i = 0; small_ != nullptr && i < kSmallBuffers; ++i) free_small_.push_back(small_ + i * kSmallBytes);
  }
  const bool use_small = bytes <= kSmallBytes && small_ != nullptr;
  std::vector<void*>& free = use_small ? free_small_ : free_large_;
  if (free.empty() && !use_small && large_.size() < kLargeBuffers && !exhausted_) {
    if (void* buffer = device::allocate_staging(kLargeBytes)) {
      large_.push_back(buffer);
      return buffer;
    }
    exhausted_ = true;
  }
  if (!use_small && large_.empty()) return nullptr;
  freed_.wait(lock, [&free] { return !free.empty(); });
  void* buffer = free.back();
  free.pop_back();
  return buffer;
}

void StagingPool::release(void* buffer) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    (is_small(buffer) ? free_small_ : free_large_).push_back(buffer);
  }
  freed_.notify_all();
}

StagedCopy::StagedCopy(StagingPool* pool, void* stream, const device::TensorView& view, uint64_t first_byte,
                       size_t bytes)
    : pool_(pool), buffer_(pool->acquire(bytes)) {
  if (buffer_ == nullptr) return;
  state_ = State::kArrived;
  if (bytes == 0) return;
  const bool begun = device::begin_copy(stream, view, first_byte, bytes, buffer_, &ticket_);
  state_ = begun ? State::kOnItsWay : State::kNotCopied;
}

StagedCopy& StagedCopy::operator=(StagedCopy&& other) noexcept {
  if (this == &other) return *this;
  reset();
  pool_ = other.pool_;
  buffer_ = std::exchange(other.buffer_, nullptr);
  ticket_ = other.ticket_;
  state_ = other.state_;
  return *this;
}

const uint8_t* StagedCopy::wait() {
  if (state_ == State::kOnItsWay) state_ = device::wait_copy(ticket_) ? State::kArrived : State::kNotCopied;
  return state_ == State::kArrived ? static_cast<const uint8_t*>(buffer_) : nullptr;
}

void StagedCopy::reset() {
  if (buffer_ == nullptr) return;
  wait();
  pool_->release(std::exchange(buffer_, nullptr));
}

}  // namespace aoti_debug
