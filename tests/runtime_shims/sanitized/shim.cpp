// Tensors in host memory behind torch's C shim: as much of it as the runtime calls. torch itself is not built with
// sanitizers, so it stays out of the process.

#include <cstdlib>
#include <memory>
#include <vector>

#include "tensors/dtype.h"
#include "tensors/torch_shim.h"

struct AtenTensorOpaque {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int32_t dtype;
  int64_t storage_bytes;
  std::shared_ptr<void> data;
};

namespace {

void free_data(void* data, void*) { std::free(data); }

AtenTensorHandle make(void* data, int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                      void (*deleter)(void*, void*), void* context) {
  int64_t last = 0;
  bool empty = false;
  for (int64_t d = 0; d < ndim; ++d) {
    empty |= sizes[d] == 0;
    last += (sizes[d] - 1) * strides[d];
  }
  const int64_t bytes = empty ? 0 : (last + 1) * aoti_debug::dtype(dtype).bytes;
  if (data == nullptr) data = std::calloc(static_cast<size_t>(bytes) + 1, 1);
  const std::shared_ptr<void> held(data, [deleter, context](void* memory) { deleter(memory, context); });
  return new AtenTensorOpaque{{sizes, sizes + ndim}, {strides, strides + ndim}, dtype, bytes, held};
}

template <class T>
AOTITorchError give(T* result, T value) {
  *result = value;
  return AOTI_TORCH_SUCCESS;
}

}  // namespace

AOTITorchError aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                        int32_t, int32_t, AtenTensorHandle* tensor) {
  return give(tensor, make(nullptr, ndim, sizes, strides, dtype, free_data, nullptr));
}

extern "C" __attribute__((visibility("default"))) AOTITorchError torch_from_blob(
    void* data, int64_t ndim, const int64_t* sizes, const int64_t* strides, int64_t, int32_t dtype, int32_t, int32_t,
    AtenTensorHandle* tensor, int32_t, const uint8_t*, int64_t, void (*deleter)(void*, void*), void* context) {
  return give(tensor, make(data, ndim, sizes, strides, dtype, deleter, context));
}

AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor) {
  delete tensor;
  return AOTI_TORCH_SUCCESS;
}

AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle* copy) {
  return give(copy, new AtenTensorOpaque(*tensor));
}
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* type) { return give(type, tensor->dtype); }
AOTITorchError aoti_torch_is_defined(AtenTensorHandle, bool* defined) { return give(defined, true); }
AOTITorchError aoti_torch_get_layout(AtenTensorHandle, int32_t* layout) { return give(layout, 0); }
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle, int32_t* type) { return give(type, 0); }
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle, int32_t* index) { return give(index, -1); }
AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* dim) {
  return give(dim, static_cast<int64_t>(tensor->sizes.size()));
}
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** sizes) {
  return give(sizes, tensor->sizes.data());
}
AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** strides) {
  return give(strides, tensor->strides.data());
}
AOTITorchError aoti_torch_get_storage_offset(AtenTensorHandle, int64_t* offset) { return give(offset, int64_t{0}); }
AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t* bytes) {
  return give(bytes, tensor->storage_bytes);
}
AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** data) { return give(data, tensor->data.get()); }

extern "C" __attribute__((visibility("default"))) const char* torch_exception_get_what_without_backtrace() {
  return "the shim failed";
}
