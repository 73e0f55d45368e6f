// Memory that outlives the process: a file of /dev/shm, mapped, and linked into the run directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "file.h"

namespace aoti_debug {

class SharedFile {
 public:
  static constexpr size_t kPageBytes = 4096;

  SharedFile() = default;
  // The mapping stays for the life of the process: the driver may know it, and a stream may still store into it.
  ~SharedFile() = default;
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  // Maps `bytes` zero bytes of a new file, the first `allocated` of which may be written, and links it as `name` in
  // the run directory. The file is locked while this process lives; its last page, behind these bytes, is the run
  // directory's path: so whoever finds it later knows whose it was. "", or why there is no such memory.
  std::string create(const std::string& run_directory, const std::string& name, size_t bytes, size_t allocated);

  // Allocates the bytes up to `end`: a write to what has no page would raise SIGBUS. 0 or an errno.
  int allocate(size_t end);

  // Puts a copy of the first `bytes` bytes into the run directory in place of the link, and removes the memory's name.
  void keep_copy(size_t bytes);

  // Removes the link and the memory's name; what is mapped stays.
  void remove();

  // Gives everything back. Nobody else may know the memory.
  void discard();

  bool is_open() const { return base_ != nullptr; }
  uint8_t* base() const { return base_; }
  size_t size() const { return size_; }

  // Bytes that /dev/shm has free.
  static uint64_t free_bytes();

 private:
  uint8_t* base_ = nullptr;
  size_t size_ = 0;
  size_t allocated_ = 0;
  File file_;  // open for its lock
  std::string path_;
  std::string link_;
};

}  // namespace aoti_debug
