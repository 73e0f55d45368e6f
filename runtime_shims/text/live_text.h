// Text for people, on standard error. Whole lines go out in one write(2); nothing is left in stdio's buffers.
#pragma once

#include <mutex>
#include <string_view>

namespace aoti_debug {

class LiveText {
 public:
  LiveText();

  // Lines, each with its end. What the terminal or the pipe does not take is dropped.
  void write(std::string_view lines);

 private:
  std::mutex mutex_;
  bool may_raise_;  // standard error is a pipe or a socket: its reader may be gone
};

}  // namespace aoti_debug
