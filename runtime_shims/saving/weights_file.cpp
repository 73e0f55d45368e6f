#include "weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "machine/file.h"
#include "safetensors_file.h"
#include "tensors/dtype.h"
#include "text/number_text.h"

namespace aoti_debug {
namespace {

// The next field of a line, and its end; false where there is none.
bool next_field(std::string_view& line, std::string_view* field) {
  if (line.empty()) return false;
  const size_t end = std::min(line.find('\t'), line.size());
  *field = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return true;
}

bool next_number(std::string_view& line, uint64_t* number) {
  std::string_view field;
  if (!next_field(line, &field) || field.empty()) return false;
  const std::string digits(field);
  char* end = nullptr;
  *number = strtoull(digits.c_str(), &end, 10);
  return *end == '\0';
}

void append_list(std::string& text, const int64_t* values, uint16_t count) {
  text += '[';
  for (uint16_t i = 0; i < count; ++i) {
    if (i != 0) text += ',';
    append_signed(text, values[i]);
  }
  text += ']';
}

}  // namespace

WeightsFile::~WeightsFile() {
  if (memory_ != nullptr) munmap(memory_, size_);
}

std::string WeightsFile::open(const std::string& table) {
  std::string text;
  if (const int error = read_file(table, &text); error != 0) return table + ": " + strerror(error);
  std::string problem = take(text);
  if (problem.empty()) problem = map();
  if (!problem.empty()) {
    weights_.clear();
    named_.clear();
  }
  return problem;
}

std::string WeightsFile::take(const std::string& text) {
  const std::string_view all = text;
  size_t start = std::min(all.find('\n'), all.size());
  std::string_view head = all.substr(0, start), path, sha256;
  if (!next_field(head, &path) || !next_number(head, &size_) || !next_field(head, &sha256)) {
    return "AOTI_DEBUG_WEIGHTS names no table of weights";
  }
  path_ = path;
  sha256_ = sha256;
  while (start < all.size()) {
    const size_t end = std::min(all.find('\n', ++start), all.size());
    std::string_view line = all.substr(start, end - start);
    start = end;
    if (line.empty()) continue;
    Weight weight{};
    std::string_view name;
    const bool is_named = line.front() == '=';
    bool is_read = is_named ? next_field(line, &name) : next_number(line, &weight.address);
    is_read = is_read && next_number(line, &weight.bytes) && next_number(line, &weight.begin);
    if (!is_read || weight.begin > size_ || weight.bytes > size_ - weight.begin) {
      return "a line of the table that AOTI_DEBUG_WEIGHTS names is damaged";
    }
    if (is_named) {
      named_[std::string(name.substr(1))] = weight;
    } else {
      weights_.push_back(weight);
    }
  }
  std::sort(weights_.begin(), weights_.end(), [](const Weight& a, const Weight& b) { return a.address < b.address; });
  return "";
}

std::string WeightsFile::map() {
  File file;
  struct stat found{};
  int error = open_file(path_, &file);
  if (error == 0 && fstat(file.descriptor(), &found) != 0) error = errno;
  if (error != 0) return path_ + ": " + strerror(error);
  if (static_cast<uint64_t>(found.st_size) != size_ || size_ == 0) return path_ + " has changed";
  void* memory = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (memory == MAP_FAILED) return path_ + ": " + strerror(errno);
  memory_ = static_cast<uint8_t*>(memory);
  return "";
}

std::optional<uint64_t> WeightsFile::find(const TensorMeta& meta, const std::string& argument) const {
  const uint64_t bytes = std::max(spanned_bytes(view_of(meta)), logical_bytes(meta));  // more where it is expanded
  if (const auto named = named_.find(argument); named != named_.end()) {
    const Weight& weight = named->second;
    const uint64_t offset = static_cast<uint64_t>(meta.storage_offset) * view_of(meta).element_bytes;
    const bool is_within = offset <= weight.bytes && bytes <= weight.bytes - offset;
    if (static_cast<uint64_t>(meta.storage_bytes) == weight.bytes && is_within) return weight.begin + offset;
  }
  const auto after = std::upper_bound(weights_.begin(), weights_.end(), meta.data,
                                      [](uint64_t data, const Weight& weight) { return data < weight.address; });
  if (after == weights_.begin()) return std::nullopt;
  const Weight& weight = *std::prev(after);
  const uint64_t offset = meta.data - weight.address;
  if (offset >= weight.bytes || bytes > weight.bytes - offset) return std::nullopt;
  return weight.begin + offset;
}

HashSums WeightsFile::hash(const TensorMeta& meta, uint64_t begin, uint64_t layout) {
  const Place place{begin, layout};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = hashes_.find(place); found != hashes_.end()) return found->second;
  }
  device::TensorView view = view_of(meta);
  view.data = reinterpret_cast<uintptr_t>(memory_ + begin);
  const HashSums sums = hash_elements(StridedReader(view), view.numel, view.element_bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  hashes_[place] = sums;
  return sums;
}

std::string WeightsFile::described() const {
  if (weights_.empty() && named_.empty()) return "";
  return path_ + "\t" + std::to_string(size_) + "\t" + sha256_;
}

std::optional<HashSums> WeightsFile::unchanged(const TensorMeta& meta, const std::string& argument, uint64_t begin) {
  const device::TensorView view = view_of(meta);
  const std::string header = safetensors_header(argument, meta);
  const uint64_t layout = hash_bytes(reinterpret_cast<const uint8_t*>(header.data()), header.size(), 0);
  const HashSums sums = hash_elements(StridedReader(view), view.numel, view.element_bytes);
  const HashSums expected = hash(meta, begin, layout);
  if (sums.first != expected.first || sums.second != expected.second) return std::nullopt;
  const uint64_t bytes = logical_bytes(meta);
  return HashSums{hash_finish(sums.first, bytes), hash_finish(sums.second, bytes)};
}

std::string WeightsFile::reference(std::string_view key, const TensorMeta& meta, uint64_t begin,
                                   const uint64_t hash[2]) const {
  std::string json = "{\"format\":1,\"name\":";
  append_json(json, key);
  json += ",\"file\":";
  append_json(json, path_);
  json += ",\"size\":";
  append_unsigned(json, size_);
  json += ",\"sha256\":";
  append_json(json, sha256_);
  json += ",\"begin\":";
  append_unsigned(json, begin);
  json += ",\"dtype\":";
  append_json(json, dtype(meta.dtype).name);
  json += ",\"shape\":";
  append_list(json, meta.sizes, meta.ndim);
  json += ",\"strides\":";
  append_list(json, meta.strides, meta.ndim);
  json += ",\"storage_offset\":";
  append_signed(json, meta.storage_offset);
  json += ",\"storage_bytes\":";
  append_signed(json, meta.storage_bytes);
  json += ",\"hash\":[";
  append_unsigned(json, hash[0]);
  json += ',';
  append_unsigned(json, hash[1]);
  return json + "]}\n";
}

}  // namespace aoti_debug
