#include "strided.h"

#include <string.h>

namespace aoti_debug {
namespace {

// An inner run: `count` elements that lie `stride` elements apart.
template <size_t kBytes>
void copy_run(const uint8_t* from, int64_t stride, int64_t count, uint8_t* to) {
  const int64_t step = stride * static_cast<int64_t>(kBytes);
  for (int64_t i = 0; i < count; ++i) memcpy(to + i * static_cast<int64_t>(kBytes), from + i * step, kBytes);
}

void copy_run(const uint8_t* from, size_t bytes, int64_t stride, int64_t count, uint8_t* to) {
  if (stride == 1) {
    memcpy(to, from, static_cast<size_t>(count) * bytes);
    return;
  }
  switch (bytes) {
    case 1:
      return copy_run<1>(from, stride, count, to);
    case 2:
      return copy_run<2>(from, stride, count, to);
    case 4:
      return copy_run<4>(from, stride, count, to);
    case 8:
      return copy_run<8>(from, stride, count, to);
    default:
      return copy_run<16>(from, stride, count, to);
  }
}

}  // namespace

StridedReader::StridedReader(const device::TensorView& view)
    : data_(reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(view.data))), element_bytes_(view.element_bytes) {
  for (uint32_t d = 0; d < view.ndim; ++d) {
    if (view.sizes[d] == 1) continue;
    if (ndim_ > 0 && strides_[ndim_ - 1] == view.strides[d] * view.sizes[d]) {
      sizes_[ndim_ - 1] *= view.sizes[d];
      strides_[ndim_ - 1] = view.strides[d];
    } else {
      sizes_[ndim_] = view.sizes[d];
      strides_[ndim_] = view.strides[d];
      ++ndim_;
    }
  }
  contiguous_ = ndim_ == 0 || (ndim_ == 1 && strides_[0] == 1) || view.numel == 0;
}

const uint8_t* StridedReader::read(int64_t first, int64_t count, uint8_t* buffer) const {
  if (contiguous_) return data_ + static_cast<size_t>(first) * element_bytes_;
  gather(first, count, buffer);
  return buffer;
}

void StridedReader::gather(int64_t first, int64_t count, uint8_t* to) const {
  int64_t index[AOTI_DEBUG_MAX_DIMS];
  int64_t offset = 0;
  int64_t rest = first;
  for (int d = ndim_ - 1; d >= 0; --d) {
    index[d] = rest % sizes_[d];
    rest /= sizes_[d];
    offset += index[d] * strides_[d];
  }
  const int inner = ndim_ - 1;
  const auto element_bytes = static_cast<int64_t>(element_bytes_);
  while (count > 0) {
    const int64_t left = sizes_[inner] - index[inner];
    const int64_t run = left < count ? left : count;
    copy_run(data_ + offset * element_bytes, element_bytes_, strides_[inner], run, to);
    to += run * element_bytes;
    count -= run;
    offset += run * strides_[inner];
    index[inner] += run;
    for (int d = inner; d > 0 && index[d] == sizes_[d]; --d) {
      offset += strides_[d - 1] - index[d] * strides_[d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

void write_strided(const device::TensorView& view, const uint8_t* from) {
  auto* const data = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(view.data));
  const size_t bytes = view.element_bytes;
  if (StridedReader(view).is_contiguous()) {
    memcpy(data, from, static_cast<size_t>(view.numel) * bytes);
    return;
  }
  int64_t index[AOTI_DEBUG_MAX_DIMS] = {};
  int64_t offset = 0;
  for (int64_t i = 0; i < view.numel; ++i) {
    memcpy(data + offset * static_cast<int64_t>(bytes), from + static_cast<size_t>(i) * bytes, bytes);
    for (int d = static_cast<int>(view.ndim) - 1; d >= 0; --d) {
      offset += view.strides[d];
      if (++index[d] < view.sizes[d]) break;
      offset -= index[d] * view.strides[d];
      index[d] = 0;
    }
  }
}

bool fits_storage(const device::TensorView& view, int64_t offset, int64_t storage_bytes) {
  if (view.numel == 0) return true;
  __extension__ typedef __int128 Wide;
  Wide lowest = offset, highest = offset;
  for (uint32_t d = 0; d < view.ndim; ++d) {
    const Wide reach = static_cast<Wide>(view.sizes[d] - 1) * view.strides[d];
    (reach < 0 ? lowest : highest) += reach;
  }
  return lowest >= 0 && (highest + 1) * static_cast<int64_t>(view.element_bytes) <= storage_bytes;
}

}  // namespace aoti_debug
