// The file that the model's weights lie in: a tensor that has the same bytes there is referred to, not saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensors/hashing.h"
#include "tensors/tensor_meta.h"

namespace aoti_debug {

// Smaller tensors are saved in any case: they are written in less than a millisecond, and the run is the more complete
// without the file.
constexpr uint64_t kReferredBytes = uint64_t{1} << 20;

class WeightsFile {
 public:
  WeightsFile() = default;
  ~WeightsFile();
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;

  // Reads what AOTI_DEBUG_WEIGHTS names, fields with tabs between them: the path of the file, its size and the SHA-256
  // of its directory; then a line for each weight: its address in this process, or "=" and the name of an argument of
  // launches that is the weight or a view of it; its bytes, and at which byte of the file it begins. Returns what is
  // wrong with it; then no tensor is found.
  std::string open(const std::string& table);

  // The byte of the file at which element 0 of the tensor may lie: it lies in a weight's memory, or its argument has
  // the name of a weight of the same size. The hash tells if it does.
  std::optional<uint64_t> find(const TensorMeta& meta, const std::string& argument) const;

  // The first line of the table; "" where no tensor is found.
  std::string described() const;

  // The content hash of a tensor in host memory, if the file has its bytes at `begin`.
  std::optional<HashSums> unchanged(const TensorMeta& meta, const std::string& argument, uint64_t begin);

  // The content hash of what the file has in the place of the tensor, whose element 0 `find` has found. Computed once
  // for each layout, of which `layout` is a hash.
  HashSums hash(const TensorMeta& meta, uint64_t begin, uint64_t layout);

  // The text of a reference: aoti_debug/runs/rundir/formats/weight_reference.py.
  std::string reference(std::string_view key, const TensorMeta& meta, uint64_t begin, const uint64_t hash[2]) const;

 private:
  struct Weight {
    uint64_t address;
    uint64_t bytes;
    uint64_t begin;
  };
  struct Place {
    uint64_t begin;
    uint64_t layout;
    bool operator==(const Place& other) const { return begin == other.begin && layout == other.layout; }
  };
  struct Hash {
    size_t operator()(const Place& place) const { return place.layout ^ (place.begin * 3); }
  };

  std::string take(const std::string& text);
  std::string map();

  std::string path_;
  std::string sha256_;
  uint64_t size_ = 0;
  uint8_t* memory_ = nullptr;                      // of the whole file
  std::vector<Weight> weights_;                    // by address
  std::unordered_map<std::string, Weight> named_;  // by the names of arguments
  std::mutex mutex_;                               // guards what follows
  std::unordered_map<Place, HashSums, Hash> hashes_;
};

}  // namespace aoti_debug
