// The files that a run has saved, by what is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace aoti_debug {

// Equal files have equal keys: the hash of the header (name, dtype, layout), and of the elements.
struct FileKey {
  uint64_t header;
  uint64_t content;  // TensorFile::hash[0]
  bool operator==(const FileKey& other) const { return header == other.header && content == other.content; }
};

struct KnownFile {
  uint64_t second_hash;  // TensorFile::hash[1]
  std::string path;      // relative to the run directory
  bool refers;           // it refers to a weight
};

class KnownFiles {
 public:
  std::optional<KnownFile> find(const FileKey& key) const;
  void add(const FileKey& key, KnownFile file);
  void forget(const FileKey& key);

  // The same for the beginning of the elements of a large host tensor: `content` is the hash of it. False: no such
  // tensor with this beginning has been saved yet.
  bool begins_alike(const FileKey& beginning) const;
  void add_beginning(const FileKey& beginning);

  // A file of this content is being written. False: another one is already.
  bool announce(const FileKey& key);
  void withdraw(const FileKey& key);
  bool is_announced(const FileKey& key) const;

 private:
  struct Hash {
    size_t operator()(const FileKey& key) const { return key.header ^ (key.content * 3); }
  };

  mutable std::mutex mutex_;
  std::unordered_map<FileKey, KnownFile, Hash> files_;
  std::unordered_set<FileKey, Hash> announced_;
  std::unordered_set<FileKey, Hash> beginnings_;
};

}  // namespace aoti_debug
