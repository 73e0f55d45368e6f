#include "live_text.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace aoti_debug {
namespace {

// Keeps SIGPIPE of this thread's writes from the host.
class PipeSignalGuard {
 public:
  explicit PipeSignalGuard(bool active) : active_(active) {
    if (!active_) return;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    active_ = sigismember(&pending, SIGPIPE) == 0 && pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
  }
  ~PipeSignalGuard() {
    if (!active_) return;
    const timespec at_once{0, 0};
    while (raised_ && sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  void note_error(int error) { raised_ |= error == EPIPE; }

 private:
  bool active_;
  bool raised_ = false;
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace

const char* failure_text(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "out of memory" : error.what();
}

LiveText::LiveText() {
  struct stat found;
  may_raise_ = fstat(STDERR_FILENO, &found) == 0 && (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode));
}

void LiveText::write(std::string_view lines) {
  const std::lock_guard<std::mutex> lock(mutex_);
  PipeSignalGuard guard(may_raise_);
  while (!lines.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      guard.note_error(errno);
      return;
    }
    lines.remove_prefix(static_cast<size_t>(written));
  }
}

void LiveText::write_failure(const char* what, const std::exception& error) {
  char line[512];
  const int length = snprintf(line, sizeof(line) - 1, "aoti-debug: %s: %s", what, failure_text(error));
  const size_t end = std::min(static_cast<size_t>(std::max(length, 0)), sizeof(line) - 2);
  line[end] = '\n';
  write(std::string_view(line, end + 1));
}

}  // namespace aoti_debug
