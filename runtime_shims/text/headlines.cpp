#include "headlines.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "machine/background_thread.h"

namespace aoti_debug {

Headlines::~Headlines() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

void Headlines::submit(std::vector<Headline>* lines) {
  if (lines->empty()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  if (!started_) {
    started_ = true;
    writer_ = background_thread([this] { work(); });
  }
  if (!writer_.joinable()) {
    write(*lines);
    return lines->clear();
  }
  changed_.wait(lock, [this] { return waiting_.size() < kMaxWaiting; });
  std::vector<Headline> empty;
  if (!spare_.empty()) {
    empty = std::move(spare_.back());
    spare_.pop_back();
  }
  waiting_.push_back(std::exchange(*lines, std::move(empty)));
  // It may be late: an old C library measures how long a thread waits by the wall clock, which may be set back.
  const bool is_late = waiting_.size() >= kMaxWaiting / 2;
  const bool wakes = sleeps_ || is_late;
  lock.unlock();
  if (wakes) changed_.notify_all();
}

void Headlines::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.notify_all();
  changed_.wait(lock, [this] { return waiting_.empty() && !writing_; });
}

void Headlines::await(std::unique_lock<std::mutex>& lock) {
  constexpr std::chrono::milliseconds kPause(1);
  constexpr int kLooks = 20;
  for (int looks = 0; looks < kLooks && !closing_ && waiting_.empty(); ++looks) changed_.wait_for(lock, kPause);
  sleeps_ = true;
  changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
  sleeps_ = false;
}

void Headlines::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    await(lock);
    if (waiting_.empty()) return;
    std::vector<Headline> lines = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    lock.unlock();
    try {
      write(lines);
    } catch (const std::exception& error) {
      live_->write_failure("lines are missing", error);
    }
    lines.clear();
    lock.lock();
    writing_ = false;
    if (spare_.size() < kMaxWaiting) spare_.push_back(std::move(lines));
    changed_.notify_all();
  }
}

void Headlines::write(const std::vector<Headline>& lines) {
  std::string text;
  for (const Headline& line : lines) {
    const LinePrefix prefix(line.id, line.thread);
    const LoopCounts loops{line.loops, line.n_loops};
    if ((line.phases & Headline::kBefore) != 0) print_launch(text, prefix, PHASE_BEFORE, line.kernel, loops);
    if ((line.phases & Headline::kAfter) != 0) print_launch(text, prefix, PHASE_AFTER, line.kernel, loops);
  }
  live_->write(text);
}

}  // namespace aoti_debug
