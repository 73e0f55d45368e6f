// A thread that does something again and again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "background_thread.h"

namespace aoti_debug {

class PeriodicThread {
 public:
  PeriodicThread() = default;
  ~PeriodicThread() { stop(); }
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

  // Calls `work` after each pause, until `stop`; from the second time on it does nothing. Where the system gives no
  // thread, nothing is called.
  void start(std::chrono::milliseconds pause, std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (started_ || stopping_) return;
    started_ = true;
    thread_ = background_thread([this, pause, work = std::move(work)] {
      std::unique_lock<std::mutex> waiting(mutex_);
      while (!stopped_.wait_for(waiting, pause, [this] { return stopping_; })) {
        waiting.unlock();
        work();
        waiting.lock();
      }
    });
  }

  // Waits until the work that runs now is done; there is no more of it then.
  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    stopped_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool started_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace aoti_debug
