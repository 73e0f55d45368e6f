// Files that are written whole or not at all. Functions return 0 or an errno, and never raise a signal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aoti_debug {

// An open file; closed when it goes.
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  File& operator=(File&& other) noexcept;
  ~File();

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

  // Closes it; what the operating system says about data that it had yet to write.
  int close();

 private:
  int descriptor_ = -1;
};

// Creates `path`, which must not exist, for reading and writing.
int create_file(const std::string& path, File* file, unsigned mode = 0644);

// Writes all of `bytes` bytes at `offset`.
int write_at(const File& file, const void* data, uint64_t bytes, uint64_t offset);

// Gives `bytes` bytes at `offset` their place on the disk: a write to a mapping of them cannot fail. Where there is no
// room for all, the file stays as it was.
int allocate(const File& file, uint64_t offset, uint64_t bytes);

// Cuts or extends a file to `bytes` bytes.
int resize(const File& file, uint64_t bytes);

// Opens an existing file for reading.
int open_file(const std::string& path, File* file);

// Reads all of a file, also of one that the kernel makes up as it is read.
int read_file(const std::string& path, std::string* text);

// Replaces `path` by a file with this text, through a temporary name beside it.
int replace_file(const std::string& path, std::string_view text);

// Makes a directory and the ones above it.
int make_directories(const std::string& path);

// The absolute path, without links; `path` itself where nothing is.
std::string absolute(const std::string& path);

// Whether the process may write a file of this size: one that is larger raises SIGXFSZ.
bool file_size_allowed(uint64_t bytes);

}  // namespace aoti_debug
