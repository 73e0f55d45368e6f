// Text for people, on standard error. Whole lines go out in one write(2); nothing is left in stdio's buffers.
#pragma once

#include <exception>
#include <mutex>
#include <string_view>

namespace aoti_debug {

// Why something has failed.
const char* failure_text(const std::exception& error);

class LiveText {
 public:
  LiveText();

  // Lines, each with its end. What the terminal or the pipe does not take is dropped.
  void write(std::string_view lines);

  // A line that says that something has failed, and why. Takes no memory: there may be none.
  void write_failure(const char* what, const std::exception& error);

 private:
  std::mutex mutex_;
  bool may_raise_;  // standard error is a pipe or a socket: its reader may be gone
};

}  // namespace aoti_debug
