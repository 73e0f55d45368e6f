// Calls of a process to the system, in files below one directory, that fail when it is told so: LD_PRELOAD. Files that
// libraries open by themselves, beyond open(2) and fopen(3), do not count. The Python processes that it starts share
// its count, in the file that COMMAND_FAULTS names; compilers and linkers do not fail.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct State {
  char root[PATH_MAX];
  size_t root_bytes;  // 0: nothing counts
  long first, count;
  std::atomic<long> calls;
  int error;        // an errno, or minus a signal
  pid_t signalled;  // gets the signal: the command, not a process that it starts
  char failed[PATH_MAX + 64];
};

State g_alone;
State* g_state = &g_alone;

bool is_python() {
  char program[PATH_MAX];
  const ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (bytes <= 0) return false;
  program[bytes] = '\0';
  const char* name = strrchr(program, '/');
  return name != nullptr && strncmp(name + 1, "python", 6) == 0;
}

__attribute__((constructor)) void share_state() {
  const char* path = getenv("COMMAND_FAULTS");
  if (path == nullptr || !is_python()) return;
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (file < 0) return;
  void* shared =
      reinterpret_cast<void*>(syscall(SYS_mmap, nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  syscall(SYS_close, file);
  if (shared != MAP_FAILED) g_state = static_cast<State*>(shared);
}

bool is_below(const char* path) {
  return strncmp(path, g_state->root, g_state->root_bytes) == 0 &&
         (path[g_state->root_bytes] == '/' || path[g_state->root_bytes] == '\0');
}

bool is_file_below(int descriptor) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t bytes = readlink(link, path, sizeof(path) - 1);
  if (bytes <= 0) return false;
  path[bytes] = '\0';
  return is_below(path);
}

bool is_path_below(int directory, const char* path) {
  if (path == nullptr) return false;
  if (path[0] == '/') return is_below(path);
  char here[PATH_MAX];
  if (directory != AT_FDCWD) return is_file_below(directory);
  return getcwd(here, sizeof(here)) != nullptr && is_below(here);
}

// The errno that the call ends with; 0 where it does not fail. A signal comes before the call.
int fault(bool counts, const char* name, const char* path, std::initializer_list<int> errors) {
  State& state = *g_state;
  if (state.root_bytes == 0 || !counts) return 0;
  if (state.error > 0 && std::find(errors.begin(), errors.end(), state.error) == errors.end()) return 0;
  if (state.error < 0 && state.signalled != getpid()) return 0;
  const long number = state.calls++;
  if (number < state.first || number - state.first >= state.count) return 0;
  if (state.failed[0] == '\0')
    snprintf(state.failed, sizeof(state.failed), "%s%s %s", state.signalled == getpid() ? "" : "in a worker: ", name,
             path == nullptr ? "" : path);
  if (state.error > 0) return state.error;
  kill(getpid(), -state.error);
  return 0;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// From now on call `first` and the `count` - 1 after it fail, of those below `root` that can end with `error`; a
// negative one is a signal, before any call. Without a root nothing fails any more.
EXPORT void fail_calls(const char* root, long first, long count, int error) {
  State& state = *g_state;
  state.root_bytes = 0;
  state.first = first;
  state.count = count;
  state.error = error;
  state.signalled = getpid();
  state.calls = 0;
  state.failed[0] = '\0';
  snprintf(state.root, sizeof(state.root), "%s", root);
  state.root_bytes = strlen(root);
}
EXPORT long calls_made() { return g_state->calls; }
EXPORT const char* call_failed() { return g_state->failed; }
EXPORT long state_bytes() { return sizeof(State); }

#define FAILING(result, name, parameters, arguments, failed, counts, path, ...) \
  EXPORT result name parameters {                                               \
    static auto* const real = next<result parameters>(#name);                   \
    if (const int error = fault(counts, #name, path, {__VA_ARGS__})) {          \
      errno = error;                                                            \
      return failed;                                                            \
    }                                                                           \
    return real arguments;                                                      \
  }
#define OF_PATH(name, parameters, arguments, at, path, ...) \
  FAILING(int, name, parameters, arguments, -1, is_path_below(at, path), path, __VA_ARGS__)
#define OF_FILE(result, name, parameters, arguments, failed, ...) \
  FAILING(result, name, parameters, arguments, failed, is_file_below(file), nullptr, __VA_ARGS__)

OF_PATH(mkdir, (const char* path, mode_t mode), (path, mode), AT_FDCWD, path, ENOSPC, EACCES, EIO)
OF_PATH(mkdirat, (int at, const char* path, mode_t mode), (at, path, mode), at, path, ENOSPC, EACCES, EIO)
OF_PATH(rmdir, (const char* path), (path), AT_FDCWD, path, EACCES, EIO)
OF_PATH(unlink, (const char* path), (path), AT_FDCWD, path, EACCES, EIO)
OF_PATH(unlinkat, (int at, const char* path, int flags), (at, path, flags), at, path, EACCES, EIO)
OF_PATH(rename, (const char* from, const char* path), (from, path), AT_FDCWD, path, ENOSPC, EACCES, EIO)
OF_PATH(renameat, (int from_at, const char* from, int at, const char* path), (from_at, from, at, path), at, path,
        ENOSPC, EACCES, EIO)
OF_PATH(link, (const char* from, const char* path), (from, path), AT_FDCWD, path, ENOSPC, EACCES, EIO)
OF_PATH(linkat, (int from_at, const char* from, int at, const char* path, int flags), (from_at, from, at, path, flags),
        at, path, ENOSPC, EACCES, EIO)
OF_PATH(symlink, (const char* to, const char* path), (to, path), AT_FDCWD, path, ENOSPC, EACCES, EIO)
OF_PATH(symlinkat, (const char* to, int at, const char* path), (to, at, path), at, path, ENOSPC, EACCES, EIO)
OF_FILE(int, fsync, (int file), (file), -1, ENOSPC, EIO)
OF_FILE(int, fdatasync, (int file), (file), -1, ENOSPC, EIO)
OF_FILE(int, ftruncate, (int file, off_t bytes), (file, bytes), -1, ENOSPC, EIO)
OF_FILE(int, ftruncate64, (int file, off_t bytes), (file, bytes), -1, ENOSPC, EIO)
OF_FILE(ssize_t, write, (int file, const void* from, size_t bytes), (file, from, bytes), -1, ENOSPC, EIO)
OF_FILE(ssize_t, pwrite, (int file, const void* from, size_t bytes, off_t at), (file, from, bytes, at), -1, ENOSPC, EIO)
OF_FILE(ssize_t, pwrite64, (int file, const void* from, size_t bytes, off_t at), (file, from, bytes, at), -1, ENOSPC,
        EIO)
OF_FILE(ssize_t, read, (int file, void* to, size_t bytes), (file, to, bytes), -1, EIO)
OF_FILE(ssize_t, pread, (int file, void* to, size_t bytes, off_t at), (file, to, bytes, at), -1, EIO)
OF_FILE(ssize_t, pread64, (int file, void* to, size_t bytes, off_t at), (file, to, bytes, at), -1, EIO)
OF_FILE(ssize_t, sendfile, (int file, int from, off_t* at, size_t bytes), (file, from, at, bytes), -1, ENOSPC, EIO)
OF_FILE(ssize_t, sendfile64, (int file, int from, off_t* at, size_t bytes), (file, from, at, bytes), -1, ENOSPC, EIO)
OF_FILE(void*, mmap, (void* at, size_t bytes, int access, int flags, int file, off_t offset),
        (at, bytes, access, flags, file, offset), MAP_FAILED, ENOMEM)
OF_FILE(void*, mmap64, (void* at, size_t bytes, int access, int flags, int file, off_t offset),
        (at, bytes, access, flags, file, offset), MAP_FAILED, ENOMEM)
FAILING(DIR*, opendir, (const char* path), (path), nullptr, is_path_below(AT_FDCWD, path), path, EACCES, EIO, ENOMEM)

#define FAILING_OPEN(name, parameters, arguments, at)                                                  \
  EXPORT int name parameters {                                                                         \
    static auto* const real = next<int parameters>(#name);                                             \
    va_list more;                                                                                      \
    va_start(more, flags);                                                                             \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;               \
    va_end(more);                                                                                      \
    const int error = (flags & O_CREAT) != 0                                                           \
                          ? fault(is_path_below(at, path), #name, path, {ENOSPC, EACCES, EIO, ENOMEM}) \
                          : fault(is_path_below(at, path), #name, path, {EACCES, EIO, ENOMEM});        \
    if (error == 0) return real arguments;                                                             \
    errno = error;                                                                                     \
    return -1;                                                                                         \
  }
FAILING_OPEN(open, (const char* path, int flags, ...), (path, flags, mode), AT_FDCWD)
FAILING_OPEN(open64, (const char* path, int flags, ...), (path, flags, mode), AT_FDCWD)
FAILING_OPEN(openat, (int at, const char* path, int flags, ...), (at, path, flags, mode), at)
FAILING_OPEN(openat64, (int at, const char* path, int flags, ...), (at, path, flags, mode), at)
