#include "shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <new>
#include <string_view>
#include <utility>

#include "clock.h"

namespace aoti_debug {
namespace {

constexpr char kShared[] = "/dev/shm";

std::string because(const std::string& what, int error) { return what + ": " + strerror(error); }

}  // namespace

std::string SharedFile::create(const std::string& run_directory, const std::string& name, size_t bytes,
                               size_t allocated) {
  link_ = run_directory + "/" + name;
  path_ = std::string(kShared) + "/aoti_debug-" + std::to_string(getpid()) + "-" +
          std::to_string(Clock::monotonic_ns()) + "-" + name;
  const size_t pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (run_directory.size() >= kPageBytes) return because("cannot set up " + link_, ENAMETOOLONG);
  File file;
  int error = create_file(path_, &file, 0600);
  if (error != 0) return because("cannot create " + path_, error);
  void* base = MAP_FAILED;
  error = flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  if (error == 0 && !file_size_allowed(pages + kPageBytes)) error = EFBIG;
  if (error == 0) error = resize(file, pages + kPageBytes);
  if (error == 0) error = write_at(file, run_directory.data(), run_directory.size(), pages);
  if (error == 0) error = aoti_debug::allocate(file, 0, allocated);
  if (error == 0) {
    base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
    if (base == MAP_FAILED) error = errno;
  }
  if (error == 0 && symlink(path_.c_str(), link_.c_str()) != 0) error = errno;
  if (error != 0) {
    if (base != MAP_FAILED) munmap(base, bytes);
    unlink(path_.c_str());
    return because("cannot set up " + link_, error);
  }
  base_ = static_cast<uint8_t*>(base);
  size_ = bytes;
  allocated_ = allocated;
  file_ = std::move(file);
  return "";
}

int SharedFile::allocate(size_t end) {
  if (end <= allocated_) return 0;
  if (end > size_) return EFBIG;
  const int error = aoti_debug::allocate(file_, allocated_, end - allocated_);
  if (error == 0) allocated_ = end;
  return error;
}

void SharedFile::keep_copy(size_t bytes) {
  if (base_ == nullptr) return;
  try {
    if (replace_file(link_, std::string_view(reinterpret_cast<const char*>(base_), bytes)) == 0) unlink(path_.c_str());
  } catch (const std::bad_alloc&) {
    return;  // the link goes on leading to the memory
  }
}

void SharedFile::remove() {
  if (base_ == nullptr) return;
  unlink(link_.c_str());
  unlink(path_.c_str());
}

void SharedFile::discard() {
  if (base_ == nullptr) return;
  remove();
  munmap(base_, size_);
  file_.close();
  base_ = nullptr;
}

uint64_t SharedFile::free_bytes() {
  struct statvfs found;
  return statvfs(kShared, &found) == 0 ? uint64_t{found.f_bavail} * found.f_frsize : 0;
}

}  // namespace aoti_debug
