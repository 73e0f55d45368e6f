// From a tensor as the runtime describes it to what the kernels take.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "device/device.h"
#include "kernel_arguments.h"

namespace aoti_debug::cuda {

// A tensor's elements, and its dimensions.
struct Layout {
  Elements elements;
  Dimension dims[kMaxDims];
};

// A size as a multiplication and a shift, for indices below 2^31.
inline void set_divider(Dimension* dim) {
  uint32_t shift = 0;
  while ((uint64_t(1) << shift) < dim->size) ++shift;
  dim->shift = shift;
  dim->magic = static_cast<uint32_t>(((uint64_t(1) << 32) * ((uint64_t(1) << shift) - dim->size)) / dim->size + 1);
}

// Joins the dimensions that lie behind one another. False where more than kMaxDims remain.
inline bool describe(const device::TensorView& view, Layout* layout) {
  Elements& elements = layout->elements;
  Dimension* const dims = layout->dims;
  elements = Elements{};
  elements.data = view.data;
  elements.count = static_cast<uint64_t>(view.numel);
  elements.narrow = view.numel <= INT32_MAX;
  uint16_t n = 0;
  const auto bytes = static_cast<int64_t>(view.element_bytes);
  for (uint32_t dim = 0; dim < view.ndim; ++dim) {
    if (view.sizes[dim] == 1) continue;
    const auto size = static_cast<uint64_t>(view.sizes[dim]);
    const int64_t stride = view.strides[dim] * bytes;
    if (n > 0 && dims[n - 1].stride == stride * view.sizes[dim]) {
      dims[n - 1].size *= size;
      dims[n - 1].stride = stride;
    } else {
      if (n == kMaxDims) return false;
      dims[n++] = Dimension{size, stride, 0, 0};
    }
  }
  if (n == 0) dims[n++] = Dimension{1, bytes, 0, 0};
  elements.n_dims = n;
  if (elements.narrow && elements.count > 0) {
    for (uint16_t dim = 1; dim < n; ++dim) set_divider(&dims[dim]);  // nothing is divided by the outermost size
  }
  return true;
}

inline bool is_contiguous(const Layout& layout, size_t element_bytes) {
  return layout.elements.n_dims == 1 && layout.dims[0].stride == static_cast<int64_t>(element_bytes);
}

// By the dimension along which elements are nearest in memory, where that is not the last one. None where chunks would
// begin in one row and end in the next, or their numbers do not fit 32 bits.
inline Interleaving interleave(const Layout& layout, size_t element_bytes) {
  const Elements& elements = layout.elements;
  const uint32_t last = elements.n_dims - 1u;
  uint32_t nearest = last;
  const auto distance = [&](uint32_t dim) { return std::abs(layout.dims[dim].stride); };
  for (uint32_t dim = last; dim-- > 0;) {
    if (distance(dim) < distance(nearest)) nearest = dim;
  }
  const uint64_t per_chunk = kChunkBytes / element_bytes;
  if (nearest == last || !elements.narrow || layout.dims[last].size % per_chunk != 0) return {};
  uint64_t behind = 1;
  for (uint32_t dim = nearest + 1; dim <= last; ++dim) behind *= layout.dims[dim].size;
  return {static_cast<uint32_t>(layout.dims[nearest].size), static_cast<uint32_t>(behind / per_chunk)};
}

struct Grid {
  uint32_t blocks;
  uint32_t threads;
};

// Blocks of kBlockThreads, each thread with so many chunks.
inline uint64_t blocks_of(uint64_t chunks, uint32_t chunks_a_thread) {
  const uint64_t of_block = uint64_t{chunks_a_thread} * kBlockThreads;
  return (chunks + of_block - 1) / of_block;
}

// Those that measure a tensor of so many chunks. Up to kMaxReceived are merged at once; more are worth it from the
// size on at which each has more to do.
inline uint32_t blocks_for(uint64_t chunks, uint32_t most_blocks) {
  uint64_t blocks = blocks_of(chunks, 4);
  if (blocks > kMaxReceived) blocks = std::max<uint64_t>(blocks_of(chunks, 8), kMaxReceived);
  return static_cast<uint32_t>(std::clamp<uint64_t>(blocks, 1, most_blocks));
}

}  // namespace aoti_debug::cuda
