// Reads the elements of a strided tensor in host memory, in row-major order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "formats/journal_format.h"

namespace aoti_debug {

class StridedReader {
 public:
  explicit StridedReader(const device::TensorView& view);

  bool is_contiguous() const { return contiguous_; }

  // `count` elements from element `first` on, without gaps: in the tensor itself where they lie so, otherwise copied
  // into `buffer`, which has room for them.
  const uint8_t* read(int64_t first, int64_t count, uint8_t* buffer) const;

 private:
  void gather(int64_t first, int64_t count, uint8_t* to) const;

  const uint8_t* data_;
  size_t element_bytes_;
  bool contiguous_;
  int ndim_ = 0;  // of the same elements with as few dimensions as possible
  int64_t sizes_[AOTI_DEBUG_MAX_DIMS];
  int64_t strides_[AOTI_DEBUG_MAX_DIMS];  // elements
};

// Writes the elements of a strided tensor in host memory; `from` has them in row-major order, without gaps.
void write_strided(const device::TensorView& view, const uint8_t* from);

// Whether every element lies within its storage, which is `storage_bytes` bytes long; element 0 is `offset` elements
// from its start.
bool fits_storage(const device::TensorView& view, int64_t offset, int64_t storage_bytes);

}  // namespace aoti_debug
