#include "known_files.h"

#include <utility>

namespace aoti_debug {

std::optional<KnownFile> KnownFiles::find(const FileKey& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = files_.find(key);
  if (found == files_.end()) return std::nullopt;
  return found->second;
}

void KnownFiles::add(const FileKey& key, KnownFile file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  files_[key] = std::move(file);
}

void KnownFiles::forget(const FileKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  files_.erase(key);
}

bool KnownFiles::begins_alike(const FileKey& beginning) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return beginnings_.count(beginning) != 0;
}

void KnownFiles::add_beginning(const FileKey& beginning) {
  const std::lock_guard<std::mutex> lock(mutex_);
  beginnings_.insert(beginning);
}

bool KnownFiles::announce(const FileKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return announced_.insert(key).second;
}

void KnownFiles::withdraw(const FileKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  announced_.erase(key);
}

bool KnownFiles::is_announced(const FileKey& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return announced_.count(key) != 0;
}

}  // namespace aoti_debug
