#include "tensor_meta.h"

#include "dtype.h"
#include "formats/journal_format.h"
#include "torch_shim.h"

// Newer than the shim that some supported versions of torch have: null where it is missing.
extern "C" __attribute__((weak)) const char* torch_exception_get_what_without_backtrace();

namespace aoti_debug {

TensorState read_tensor_meta(uint64_t handle, TensorMeta* meta) {
  const auto tensor = reinterpret_cast<AtenTensorHandle>(static_cast<uintptr_t>(handle));
  *meta = TensorMeta{};
  int32_t number = 0;
  if (aoti_torch_get_dtype(tensor, &meta->dtype) != AOTI_TORCH_SUCCESS) return TensorState::kUnknown;
  if (meta->dtype < 0 || meta->dtype >= kBComplex32) {  // the number of no dtype up to torch 2.14
    bool defined = false;
    if (aoti_torch_is_defined(tensor, &defined) != AOTI_TORCH_SUCCESS) return TensorState::kUnknown;
    if (!defined) return TensorState::kUndefined;
  }
  if (aoti_torch_get_layout(tensor, &number) != AOTI_TORCH_SUCCESS) return TensorState::kUnknown;
  meta->layout = static_cast<int16_t>(number);
  if (aoti_torch_get_device_type(tensor, &number) != AOTI_TORCH_SUCCESS) return TensorState::kUnknown;
  meta->device_type = static_cast<int16_t>(number);
  if (aoti_torch_get_device_index(tensor, &number) != AOTI_TORCH_SUCCESS) return TensorState::kUnknown;
  meta->device_index = static_cast<int16_t>(number);
  if (meta->layout != kLayoutStrided) return TensorState::kDefined;

  int64_t ndim = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  void* data = nullptr;
  const bool known = aoti_torch_get_dim(tensor, &ndim) == AOTI_TORCH_SUCCESS && ndim <= AOTI_DEBUG_MAX_DIMS &&
                     aoti_torch_get_sizes(tensor, &sizes) == AOTI_TORCH_SUCCESS &&
                     aoti_torch_get_strides(tensor, &strides) == AOTI_TORCH_SUCCESS &&
                     aoti_torch_get_storage_offset(tensor, &meta->storage_offset) == AOTI_TORCH_SUCCESS &&
                     aoti_torch_get_storage_size(tensor, &meta->storage_bytes) == AOTI_TORCH_SUCCESS &&
                     aoti_torch_get_data_ptr(tensor, &data) == AOTI_TORCH_SUCCESS;
  if (!known) return TensorState::kUnknown;
  meta->ndim = static_cast<uint16_t>(ndim);
  meta->sizes = sizes;
  meta->strides = strides;
  meta->data = reinterpret_cast<uintptr_t>(data);
  return TensorState::kDefined;
}

int64_t element_count(const TensorMeta& meta) {
  int64_t count = 1;
  for (uint16_t d = 0; d < meta.ndim; ++d) count *= meta.sizes[d];
  return count;
}

uint64_t logical_bytes(const TensorMeta& meta) {
  return static_cast<uint64_t>(element_count(meta)) * dtype(meta.dtype).bytes;
}

device::TensorView view_of(const TensorMeta& meta) {
  device::TensorView view;
  view.data = meta.data;
  view.dtype = meta.dtype;
  view.device_type = meta.device_type;
  view.device_index = meta.device_index;
  view.ndim = meta.ndim;
  view.sizes = meta.sizes;
  view.strides = meta.strides;
  view.numel = element_count(meta);
  view.element_bytes = dtype(meta.dtype).bytes;
  return view;
}

// No stride of such a tensor is negative.
uint64_t spanned_bytes(const device::TensorView& view) {
  int64_t last = 0;
  for (uint32_t d = 0; d < view.ndim; ++d) {
    if (view.sizes[d] == 0) return 0;
    last += (view.sizes[d] - 1) * view.strides[d];
  }
  return static_cast<uint64_t>(last + 1) * view.element_bytes;
}

const char* shim_error_text() {
  if (torch_exception_get_what_without_backtrace == nullptr) return "";
  const char* text = torch_exception_get_what_without_backtrace();
  return text == nullptr ? "" : text;
}

}  // namespace aoti_debug
