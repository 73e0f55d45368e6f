// The control page of this library (formats/control_format.h), and the settings that it has brought.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "formats/control_format.h"

namespace aoti_debug {

// The value of a variable: what a control page has set, else the environment's. nullptr where it is absent, or set to
// nothing by the page.
const char* setting(const char* name);

// Whoever calls these functions holds the lock that guards the start of a run, except for has_request() and the counts.
class Control {
 public:
  Control() = default;
  // The page stays: another thread may still be within a call when the process exits.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Makes the page, once in a process. Without one (no memory, or the system denies it) nobody can attach.
  void open();

  // Whether open() has been called in this process.
  bool is_tried() const { return tried_.load(std::memory_order_relaxed); }

  // In the child of a fork: the page is the parent's.
  void forget();

  // No model is left, so no call is running. open() makes another page.
  void close();

  // Whether settings have been asked for that are not in force.
  bool has_request() const {
    const ControlPage* made = page();
    return made != nullptr &&
           __atomic_load_n(&made->requested, __ATOMIC_ACQUIRE) != __atomic_load_n(&made->accepted, __ATOMIC_RELAXED);
  }

  // Has setting() return what is asked for. Nothing else reads settings meanwhile.
  void accept();

  // Whether the settings that are asked for were not looked at before.
  bool is_new();

  void delay(ControlDelay reason);
  void set_level(uint32_t level);
  void begin_run(const std::string& directory);

  void count_call() {
    if (ControlPage* made = page()) __atomic_fetch_add(&made->calls, 1, __ATOMIC_RELAXED);
  }

  void count_launch(uint32_t sequence, uint32_t site) {
    ControlPage* made = page();
    if (made == nullptr) return;
    __atomic_store_n(&made->launches, sequence, __ATOMIC_RELAXED);
    __atomic_store_n(&made->last_site, site, __ATOMIC_RELAXED);
  }

 private:
  ControlPage* page() const { return page_.load(std::memory_order_acquire); }

  std::atomic<ControlPage*> page_{nullptr};  // mapped for the life of the process
  int descriptor_ = -1;
  uint32_t seen_ = 0;
  std::atomic<bool> tried_{false};
};

// This library's.
extern Control control;

}  // namespace aoti_debug
