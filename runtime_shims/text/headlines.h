// The lines of level 3 on a device: a thread of their own puts them into words, away from the launches.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "journal/launch_id.h"
#include "launch_text.h"
#include "live_text.h"

namespace aoti_debug {

// The line that names a launch as it begins, the one as it ends, or both of them.
struct Headline {
  static constexpr uint32_t kLoops = 4;
  enum Phases : uint8_t { kBefore = 1, kAfter = 2, kBoth = 3 };

  const char* kernel;  // of a static table
  LaunchId id;
  uint32_t thread;  // 0: lines carry no thread
  Phases phases;
  uint8_t n_loops;
  uint32_t loops[kLoops];
};

class Headlines {
 public:
  explicit Headlines(LiveText* live) : live_(live) { spare_.reserve(kMaxWaiting); }
  ~Headlines();  // after all lines
  Headlines(const Headlines&) = delete;
  Headlines& operator=(const Headlines&) = delete;

  // Takes the lines, which leaves `lines` empty. Waits while too many of them wait to be written.
  void submit(std::vector<Headline>* lines);

  // Returns once all lines that were submitted are written.
  void drain();

 private:
  static constexpr size_t kMaxWaiting = 64;

  // Returns once there are lines, or none will come. While they come the thread looks for them by itself: to wake it
  // would cost a launch a system call.
  void await(std::unique_lock<std::mutex>& lock);
  void work();
  void write(const std::vector<Headline>& lines);

  LiveText* live_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::vector<Headline>> waiting_;
  std::vector<std::vector<Headline>> spare_;
  std::thread writer_;
  bool started_ = false;
  bool writing_ = false;
  bool closing_ = false;
  bool sleeps_ = false;  // the thread has to be woken
};

}  // namespace aoti_debug
