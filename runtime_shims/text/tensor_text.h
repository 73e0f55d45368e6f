// A tensor as torch writes it: repr(tensor), with torch's default print options.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace aoti_debug {

// A tensor that is printed: all its elements, or those at its edges where there are more than 1000.
struct PrintedTensor {
  int32_t dtype = 0;
  std::string device;          // "cuda:0"; "" for host memory
  std::vector<int64_t> sizes;  // of the tensor
  std::vector<int64_t> shown;  // of the elements that are printed
  std::vector<uint8_t> bytes;  // those elements, row-major
  std::string unread;          // why there are none; "" where there are
};

// The printed elements of a tensor as one strided tensor. `dims` keeps its sizes and strides.
device::TensorView printed_view(const device::TensorView& view, std::vector<int64_t>* dims);

// Sizes of the elements that are printed.
std::vector<int64_t> printed_sizes(const device::TensorView& view);

// repr(tensor).
std::string tensor_repr(const PrintedTensor& tensor);

// format(tensor, spec): of no dimension the number, otherwise repr.
std::string format_tensor(const PrintedTensor& tensor, std::string_view spec);

}  // namespace aoti_debug
