#include "backtrace.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>

namespace aoti_debug {
namespace {

constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kNumCrashes = sizeof(kCrashes) / sizeof(kCrashes[0]);
constexpr int kCaught = kNumCrashes + 2;
constexpr int kMaxFrames = 256;
constexpr size_t kStackBytes = size_t{128} << 10;
constexpr int kMaxWaitTicks = 250;  // of 20 ms, while another thread writes down its crash

struct sigaction g_previous[kCaught];  // crashes in order, then the request, then SIGTERM
bool g_installed = false;
char g_stacks_path[PATH_MAX] = "";  // "": nothing is written
char g_maps_path[PATH_MAX] = "";
std::atomic<int> g_crashed{0};  // the thread that crashed first
std::atomic<bool> g_maps_copied{false};
thread_local void* t_stack = nullptr;

// Everything from here to `install` runs within signal handlers: system calls and arithmetic only.

int thread_id() { return static_cast<int>(syscall(SYS_gettid)); }

// A line in the making; what does not fit is left out.
class Line {
 public:
  void text(const char* words) {
    while (*words != '\0') put(*words++);
  }
  void number(int64_t value) {
    if (value < 0) put('-');
    digits(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value), 10);
  }
  void address(uintptr_t value) {
    text("0x");
    digits(value, 16);
  }
  void write_to(int descriptor) {
    put('\n');
    const char* from = line_;
    while (from < end_) {
      const ssize_t written = ::write(descriptor, from, static_cast<size_t>(end_ - from));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;
      from += written;
    }
  }

 private:
  void put(char c) {
    if (end_ < line_ + sizeof(line_)) *end_++ = c;
  }
  void digits(uint64_t value, uint64_t base) {
    char reversed[20];
    int count = 0;
    do {
      reversed[count++] = "0123456789abcdef"[value % base];
    } while ((value /= base) != 0);
    while (count > 0) put(reversed[--count]);
  }

  char line_[kMaxFrames * 19 + 64];
  char* end_ = line_;
};

uintptr_t program_counter(const void* context) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(machine.pc);
#else
  static_cast<void>(machine);
  return 0;
#endif
}

// Where the code would return to if it were at its first instruction, as it is after a call to a wrong address, from
// where nothing can be unwound. 0 where that cannot be read.
uintptr_t caller(const void* context) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  uintptr_t value = 0;
  iovec to{&value, sizeof(value)};
  iovec from{reinterpret_cast<void*>(machine.gregs[REG_RSP]), sizeof(value)};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof(value) ? value : 0;
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(machine.regs[30]);
#else
  static_cast<void>(machine);
  return 0;
#endif
}

void copy_maps() {
  if (g_maps_copied.exchange(true)) return;
  const int from = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  const int to = open(g_maps_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  char chunk[4096];
  ssize_t count = 0;
  while (from >= 0 && to >= 0 && (count = read(from, chunk, sizeof(chunk))) > 0) {
    if (::write(to, chunk, static_cast<size_t>(count)) != count) break;
  }
  if (from >= 0) close(from);
  if (to >= 0) close(to);
}

// What is written where no frame has the code address: of a crash in memory that is no code, only the caller is known.
enum class WithoutAddress { kNoFrame, kAllFrames };

void write_frames(int descriptor, int thread, uintptr_t pc, WithoutAddress otherwise) {
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  int first = 0;  // the frames before it are the handler's
  while (first < count && reinterpret_cast<uintptr_t>(frames[first]) != pc) ++first;
  if (first == count && otherwise == WithoutAddress::kAllFrames) first = 0;
  Line line;
  line.text("frames ");
  line.number(thread);
  for (int i = first; i < count; ++i) {
    line.text(" ");
    line.address(reinterpret_cast<uintptr_t>(frames[i]));
  }
  line.write_to(descriptor);
}

struct StackCause {
  int signal;
  int code;
  uintptr_t address;
  uintptr_t pc;
  uintptr_t caller;
  WithoutAddress otherwise;
};

void write_stack_of(const StackCause& cause) {
  if (g_stacks_path[0] == '\0') return;
  const int descriptor = open(g_stacks_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return;
  const int thread = thread_id();
  {
    Line line;
    line.text("thread ");
    line.number(thread);
    line.text(" signal ");
    line.number(cause.signal);
    line.text(" code ");
    line.number(cause.code);
    line.text(" address ");
    line.address(cause.address);
    line.text(" pc ");
    line.address(cause.pc);
    line.text(" caller ");
    line.address(cause.caller);
    line.write_to(descriptor);
  }
  {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    Line line;
    line.text("time ");
    line.number(thread);
    line.text(" ");
    line.number(static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
    line.write_to(descriptor);
  }
  copy_maps();
  write_frames(descriptor, thread, cause.pc, cause.otherwise);
  close(descriptor);
}

void write_stack(int number, const siginfo_t* info, const void* context) {
  write_stack_of({number, info->si_code, reinterpret_cast<uintptr_t>(info->si_addr), program_counter(context),
                  caller(context), WithoutAddress::kNoFrame});
}

void wait_for_the_end() {
  const timespec pause{0, 20'000'000};
  for (int i = 0; i < kMaxWaitTicks; ++i) nanosleep(&pause, nullptr);
}

void on_crash(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  int first = 0;
  if (g_crashed.compare_exchange_strong(first, thread_id())) {
    write_stack(number, info, context);
  } else if (first != thread_id()) {
    wait_for_the_end();
  }
  for (int i = 0; i < kNumCrashes; ++i) {
    if (kCrashes[i] == number) sigaction(number, &g_previous[i], nullptr);
  }
  // An instruction that faults does so again on return; a signal that was sent is sent again.
  if (info->si_code <= 0) syscall(SYS_tgkill, getpid(), thread_id(), number);
  errno = saved_errno;
}

void call_previous(const struct sigaction& previous, int number, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    if (previous.sa_sigaction != nullptr) previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  }
}

void on_request(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  write_stack(number, info, context);
  call_previous(g_previous[kNumCrashes], number, info, context);
  errno = saved_errno;
}

// Someone ends the process, as torchrun does with the other ranks when one has failed.
void on_termination(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  write_stack(number, info, context);
  const struct sigaction& previous = g_previous[kNumCrashes + 1];
  if ((previous.sa_flags & SA_SIGINFO) == 0 && previous.sa_handler == SIG_DFL) {
    sigaction(number, &previous, nullptr);
    syscall(SYS_tgkill, getpid(), thread_id(), number);
  } else {
    call_previous(previous, number, info, context);
  }
  errno = saved_errno;
}

using Handler = void (*)(int, siginfo_t*, void*);

int signal_of(int index) {
  if (index < kNumCrashes) return kCrashes[index];
  return index == kNumCrashes ? SIGRTMIN + kStackRequest : SIGTERM;
}

Handler handler_of(int index) {
  if (index < kNumCrashes) return on_crash;
  return index == kNumCrashes ? on_request : on_termination;
}

// Whether the signal lets a system call go on. The host's handler of SIGTERM may need it to end: Python's runs only
// when the call has returned.
int restart_of(int number, const struct sigaction& previous) {
  return number == SIGTERM ? previous.sa_flags & SA_RESTART : SA_RESTART;
}

void install() {
  void* warm_up[1];
  static_cast<void>(backtrace(warm_up, 1));  // its first call loads a library and takes memory
  for (int i = 0; i < kCaught; ++i) {
    const int number = signal_of(i);
    if (sigaction(number, nullptr, &g_previous[i]) != 0) continue;
    struct sigaction action{};
    action.sa_sigaction = handler_of(i);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | restart_of(number, g_previous[i]);
    sigemptyset(&action.sa_mask);
    for (const int crash : kCrashes) {
      if (i < kNumCrashes) sigaddset(&action.sa_mask, crash);
    }
    sigaction(number, &action, nullptr);
  }
  g_installed = true;
}

}  // namespace

void catch_crashes(const std::string& directory) {
  const std::string stacks = directory + "/backtrace.txt", maps = directory + "/backtrace.maps";
  if (stacks.size() >= sizeof(g_stacks_path) || maps.size() >= sizeof(g_maps_path)) return;
  memcpy(g_maps_path, maps.c_str(), maps.size() + 1);
  memcpy(g_stacks_path, stacks.c_str(), stacks.size() + 1);
  if (!g_installed) install();
}

void release_crashes() {
  if (!g_installed) return;
  g_stacks_path[0] = '\0';
  for (int i = 0; i < kCaught; ++i) {
    struct sigaction current;
    if (sigaction(signal_of(i), nullptr, &current) != 0) continue;
    if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == handler_of(i)) {
      sigaction(signal_of(i), &g_previous[i], nullptr);
    }
  }
  g_installed = false;
}

void forget_crashes() {
  g_stacks_path[0] = '\0';
  g_maps_copied.store(false);
  g_crashed.store(0);
}

void write_own_stack(const void* pc) {
  write_stack_of({SIGRTMIN + kStackRequest, 0, 0, reinterpret_cast<uintptr_t>(pc), 0, WithoutAddress::kAllFrames});
}

void add_signal_stack() {
  stack_t current;
  if (t_stack != nullptr || sigaltstack(nullptr, &current) != 0) return;
  if ((current.ss_flags & SS_DISABLE) == 0 && current.ss_size >= kStackBytes) return;
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return;
  const stack_t stack{memory, 0, kStackBytes};
  if (sigaltstack(&stack, nullptr) == 0) {
    t_stack = memory;
  } else {
    munmap(memory, kStackBytes);
  }
}

void remove_signal_stack() {
  stack_t current;
  if (t_stack == nullptr || sigaltstack(nullptr, &current) != 0 || current.ss_sp != t_stack) return;
  const stack_t none{nullptr, SS_DISABLE, 0};
  if (sigaltstack(&none, nullptr) == 0) munmap(t_stack, kStackBytes);
  t_stack = nullptr;
}

}  // namespace aoti_debug
