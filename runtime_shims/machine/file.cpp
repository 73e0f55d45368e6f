#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace aoti_debug {
namespace {

constexpr uint64_t kMaxPerWrite = uint64_t{1} << 30;

// The host's signals may end a call before it has done anything.
int open_again(const char* path, int flags, unsigned mode, File* file) {
  int descriptor = -1;
  do descriptor = open(path, flags | O_CLOEXEC, mode);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return errno;
  *file = File(descriptor);
  return 0;
}

}  // namespace

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

File::~File() { close(); }

int File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  return descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR ? errno : 0;
}

int create_file(const std::string& path, File* file, unsigned mode) {
  return open_again(path.c_str(), O_RDWR | O_CREAT | O_EXCL, mode, file);
}

int open_file(const std::string& path, File* file) { return open_again(path.c_str(), O_RDONLY, 0, file); }

int allocate(const File& file, uint64_t offset, uint64_t bytes) {
  struct stat before;
  if (fstat(file.descriptor(), &before) != 0) return errno;
  int error = 0;
  do error = posix_fallocate(file.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  while (error == EINTR);
  // A full disk may have given a part, which nobody uses: what is still to be written needs it.
  if (error != 0) resize(file, static_cast<uint64_t>(before.st_size));
  return error;
}

int resize(const File& file, uint64_t bytes) {
  int result = 0;
  do result = ftruncate(file.descriptor(), static_cast<off_t>(bytes));
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

std::string absolute(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) != nullptr ? resolved : path;
}

bool file_size_allowed(uint64_t bytes) {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

int write_at(const File& file, const void* data, uint64_t bytes, uint64_t offset) {
  if (!file_size_allowed(offset + bytes)) return EFBIG;
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written =
        pwrite(file.descriptor(), from, bytes < kMaxPerWrite ? bytes : kMaxPerWrite, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    from += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<uint64_t>(written);
  }
  return 0;
}

int read_file(const std::string& path, std::string* text) {
  File file;
  if (const int error = open_file(path, &file)) return error;
  char part[4096];
  for (text->clear();;) {
    const ssize_t got = ::read(file.descriptor(), part, sizeof(part));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : 0;
    text->append(part, static_cast<size_t>(got));
  }
}

int replace_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp-" + std::to_string(getpid());
  File file;
  int error = create_file(temporary, &file);
  if (error != 0) return error;
  error = write_at(file, text.data(), text.size(), 0);
  if (const int closing = file.close(); error == 0) error = closing;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temporary.c_str());
  return error;
}

int make_directories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
      struct stat found;
      const int error = errno;
      if (stat(part.c_str(), &found) != 0) return error;
    }
    if (slash == std::string::npos) break;
  }
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return errno;
  return S_ISDIR(found.st_mode) ? 0 : ENOTDIR;
}

}  // namespace aoti_debug
