// What the AOTI C shim tells about a tensor.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace aoti_debug {

// What a tensor has beside its sizes, strides and address; without padding, so that it is compared as bytes.
struct TensorKind {
  int32_t dtype;  // c10::ScalarType
  int16_t device_type;
  int16_t device_index;
  int16_t layout;
  uint16_t ndim;  // 0 where the layout is not strided
  uint32_t reserved;
  int64_t storage_offset;  // elements
  int64_t storage_bytes;
};
static_assert(sizeof(TensorKind) == 32, "");

// A tensor's layout. `sizes` and `strides` are the tensor's own: they live as long as it does, unchanged.
struct TensorMeta : TensorKind {
  uint64_t data;  // address of element 0; 0 where there is none
  const int64_t* sizes;
  const int64_t* strides;
};

enum class TensorState : uint8_t { kDefined, kUndefined, kUnknown };

// `handle` is an AtenTensorHandle, not null. kUnknown: the shim gave an error.
TensorState read_tensor_meta(uint64_t handle, TensorMeta* meta);

int64_t element_count(const TensorMeta& meta);

// Bytes of the logical tensor; 0 where the dtype is unknown.
uint64_t logical_bytes(const TensorMeta& meta);

device::TensorView view_of(const TensorMeta& meta);

// From the first element to the end of the last one, in bytes, of a tensor that can be read.
uint64_t spanned_bytes(const device::TensorView& view);

// The text of the last error that the shim reported on this thread; "" where this torch does not tell.
const char* shim_error_text();

}  // namespace aoti_debug
