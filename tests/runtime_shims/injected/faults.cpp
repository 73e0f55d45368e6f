// Calls to the system that fail when the host says so. The runtime alone is linked with --wrap for them, so that no
// call of the model, of torch or of the C++ library fails.
#include "faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>

#include "tensors/torch_shim.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

Faults* g_faults = nullptr;
const char* g_base = nullptr;  // of this library

}  // namespace

EXPORT void inject(Faults* faults) {
  Dl_info here{};
  dladdr(reinterpret_cast<const void*>(&fault_of), &here);
  g_base = static_cast<const char*>(here.dli_fbase);
  g_faults = faults;
  if (begin_device != nullptr) begin_device();
}

// Of a package for the CPU, which has no other.
EXPORT __attribute__((weak)) void f_mark(AtenTensorHandle) {}
EXPORT __attribute__((weak)) void f_unmark(AtenTensorHandle) {}

int fault_of(FaultClass of, const char* name, std::initializer_list<int> errors, const void* from) {
  Faults* const faults = g_faults;
  if (faults == nullptr || faults->armed == 0 || faults->fault_class != of) return 0;
  if (faults->only != 0 && std::find(errors.begin(), errors.end(), faults->only) == errors.end()) return 0;
  if (faults->calls.fetch_add(1) - faults->first >= faults->count) return 0;
  if (faults->only == 0 && faults->choice >= errors.size()) return 0;
  if (strcmp(name, "unlink") == 0 || strcmp(name, "rmdir") == 0) faults->removals.fetch_add(1);
  const int error = faults->only != 0 ? faults->only : errors.begin()[faults->choice];
  if (faults->failed.fetch_add(1) == 0) {
    strncpy(faults->name, name, sizeof(faults->name) - 1);
    faults->error = error;
    faults->from = static_cast<uint64_t>(static_cast<const char*>(from) - g_base);
  }
  return error;
}

// How many of the bytes of a write that is cut short are written.
static size_t short_of(size_t bytes) { return g_faults->part == 0 ? (bytes + 1) / 2 : g_faults->part; }
static bool can_be_short(size_t bytes) { return g_faults == nullptr || g_faults->part == 0 || g_faults->part < bytes; }

#define SYSTEM_FAULT(name, ...) fault_of(FAULT_OF_SYSTEM, name, {__VA_ARGS__}, __builtin_return_address(0))
#define MEMORY_FAULT(name) fault_of(FAULT_OF_MEMORY, name, {ENOMEM}, __builtin_return_address(0))

// A function that returns -1 or nullptr and sets errno.
#define FAILING(result, name, parameters, arguments, failed, ...)        \
  extern "C" result real_##name parameters __asm__(#name);               \
  extern "C" result __wrap_##name parameters {                           \
    if (const int error = SYSTEM_FAULT(#name, __VA_ARGS__); error > 0) { \
      errno = error;                                                     \
      return failed;                                                     \
    }                                                                    \
    return real_##name arguments;                                        \
  }
// A function that returns an errno.
#define FAILING_ERROR(name, parameters, arguments, ...)                              \
  extern "C" int real_##name parameters __asm__(#name);                              \
  extern "C" int __wrap_##name parameters {                                          \
    if (const int error = SYSTEM_FAULT(#name, __VA_ARGS__); error > 0) return error; \
    return real_##name arguments;                                                    \
  }

FAILING(int, access, (const char* path, int mode), (path, mode), -1, EACCES, EIO)
FAILING(int, flock, (int file, int how), (file, how), -1, ENOLCK, EIO)
FAILING(int, fstat, (int file, struct stat* found), (file, found), -1, EIO, ENOMEM)
FAILING(int, lstat, (const char* path, struct stat* found), (path, found), -1, EACCES, EIO)
FAILING(int, stat, (const char* path, struct stat* found), (path, found), -1, EACCES, EIO)
FAILING(int, statvfs, (const char* path, struct statvfs* found), (path, found), -1, EACCES, EIO)
FAILING(int, ftruncate, (int file, off_t bytes), (file, bytes), -1, ENOSPC, EIO, EINTR)
FAILING(int, gethostname, (char* name, size_t bytes), (name, bytes), -1, ENAMETOOLONG)
FAILING(int, link, (const char* from, const char* to), (from, to), -1, ENOSPC, EACCES, EMLINK, EIO)
FAILING(int, madvise, (void* at, size_t bytes, int advice), (at, bytes, advice), -1, ENOMEM, EIO)
FAILING(int, mkdir, (const char* path, mode_t mode), (path, mode), -1, ENOSPC, EACCES, EIO)
FAILING(int, rename, (const char* from, const char* to), (from, to), -1, ENOSPC, EACCES, EIO)
FAILING(int, rmdir, (const char* path), (path), -1, EPERM, EBUSY)
FAILING(int, symlink, (const char* to, const char* path), (to, path), -1, ENOSPC, EACCES, EIO)
FAILING(int, unlink, (const char* path), (path), -1, EPERM, EBUSY)
FAILING(ssize_t, pread, (int file, void* to, size_t bytes, off_t at), (file, to, bytes, at), -1, EIO, EINTR)
FAILING(ssize_t, read, (int file, void* to, size_t bytes), (file, to, bytes), -1, EIO, EINTR)
FAILING(ssize_t, readlink, (const char* path, char* to, size_t bytes), (path, to, bytes), -1, EACCES, EIO)
FAILING(DIR*, opendir, (const char* path), (path), nullptr, EMFILE, EACCES, ENOMEM)
FAILING(struct dirent*, readdir, (DIR * directory), (directory), nullptr, EIO)
FAILING(char*, realpath, (const char* path, char* to), (path, to), nullptr, EACCES, ENOMEM)
FAILING(void*, mmap, (void* at, size_t bytes, int access, int flags, int file, off_t offset),
        (at, bytes, access, flags, file, offset), MAP_FAILED, ENOMEM, EAGAIN)
FAILING(void*, dlopen, (const char* path, int how), (path, how), nullptr, ENOMEM)
FAILING(size_t, fwrite, (const void* from, size_t bytes, size_t count, FILE* file), (from, bytes, count, file), 0,
        ENOSPC, EIO)
FAILING_ERROR(posix_fallocate, (int file, off_t at, off_t bytes), (file, at, bytes), ENOSPC, EIO, EINTR)
FAILING_ERROR(pthread_atfork, (void (*before)(), void (*after)(), void (*child)()), (before, after, child), ENOMEM)
FAILING_ERROR(pthread_key_create, (pthread_key_t * key, void (*end)(void*)), (key, end), EAGAIN, ENOMEM)
FAILING_ERROR(pthread_setspecific, (pthread_key_t key, const void* value), (key, value), ENOMEM)

extern "C" int real_open(const char* path, int flags, ...) __asm__("open");
extern "C" int __wrap_open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  const int error = (flags & O_CREAT) != 0 ? SYSTEM_FAULT("open", ENOSPC, EACCES, EMFILE, EIO, EINTR)
                                           : SYSTEM_FAULT("open", EMFILE, EACCES, EINTR, EIO);
  if (error == 0) return real_open(path, flags, mode);
  errno = error;
  return -1;
}

// The descriptor is gone whatever it says.
extern "C" int real_close(int file) __asm__("close");
extern "C" int __wrap_close(int file) {
  const int error = SYSTEM_FAULT("close", EDQUOT, EIO, EINTR);
  const int closed = real_close(file);
  if (error == 0) return closed;
  errno = error;
  return -1;
}

extern "C" ssize_t real_write(int file, const void* from, size_t bytes) __asm__("write");
extern "C" ssize_t __wrap_write(int file, const void* from, size_t bytes) {
  const int error = !can_be_short(bytes)    ? SYSTEM_FAULT("write")
                    : file == STDERR_FILENO ? SYSTEM_FAULT("write", EPIPE, EAGAIN, EINTR, kHalf)
                                            : SYSTEM_FAULT("write", ENOSPC, EIO, EINTR, kHalf);
  if (error == kHalf) return real_write(file, from, short_of(bytes));
  if (error == 0) return real_write(file, from, bytes);
  errno = error;
  return -1;
}

extern "C" ssize_t real_pwrite(int file, const void* from, size_t bytes, off_t at) __asm__("pwrite");
extern "C" ssize_t __wrap_pwrite(int file, const void* from, size_t bytes, off_t at) {
  const int error = can_be_short(bytes) ? SYSTEM_FAULT("pwrite", ENOSPC, EIO, EINTR, kHalf) : SYSTEM_FAULT("pwrite");
  if (error == kHalf) return real_pwrite(file, from, short_of(bytes), at);
  if (error == 0) return real_pwrite(file, from, bytes, at);
  errno = error;
  return -1;
}

// To ask for them, and to set the old ones again, always succeeds.
extern "C" int real_sigaltstack(const stack_t* fresh, stack_t* old) __asm__("sigaltstack");
extern "C" int __wrap_sigaltstack(const stack_t* fresh, stack_t* old) {
  const bool is_new = fresh != nullptr && (fresh->ss_flags & SS_DISABLE) == 0;
  const int error = is_new ? SYSTEM_FAULT("sigaltstack", ENOMEM) : 0;
  if (error == 0) return real_sigaltstack(fresh, old);
  errno = error;
  return -1;
}

// std::thread's constructor, after it has taken memory. The state is passed as the address of a std::unique_ptr, which
// the caller destroys.
extern "C" void real_start_thread(std::thread* thread, void* state, void (*depend)()) __asm__(
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE");
extern "C" void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* thread, void* state, void (*depend)()) {
  if (const int error = SYSTEM_FAULT("pthread_create", EAGAIN); error != 0) {
    throw std::system_error(error, std::generic_category());
  }
  real_start_thread(thread, state, depend);
}

// The tensors that the runtime asks torch for: buffers with guards.
extern "C" AOTITorchError real_aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes, const int64_t* strides,
                                                        int32_t dtype, int32_t device_type, int32_t device_index,
                                                        AtenTensorHandle* tensor) __asm__("aoti_torch_empty_strided");
extern "C" AOTITorchError __wrap_aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes, const int64_t* strides,
                                                          int32_t dtype, int32_t device_type, int32_t device_index,
                                                          AtenTensorHandle* tensor) {
  if (MEMORY_FAULT("aoti_torch_empty_strided") != 0) return static_cast<AOTITorchError>(1);
  return real_aoti_torch_empty_strided(ndim, sizes, strides, dtype, device_type, device_index, tensor);
}

extern "C" void* real_malloc(size_t bytes) __asm__("malloc");
extern "C" void* __wrap_malloc(size_t bytes) { return MEMORY_FAULT("malloc") != 0 ? nullptr : real_malloc(bytes); }
extern "C" void* __wrap__Znwm(size_t bytes) {
  if (MEMORY_FAULT("new") != 0) throw std::bad_alloc();
  return operator new(bytes);
}
extern "C" void* __wrap__Znam(size_t bytes) {
  if (MEMORY_FAULT("new[]") != 0) throw std::bad_alloc();
  return operator new[](bytes);
}
extern "C" void* __wrap__ZnwmRKSt9nothrow_t(size_t bytes, const std::nothrow_t& tag) noexcept {
  return MEMORY_FAULT("new") != 0 ? nullptr : operator new(bytes, tag);
}
