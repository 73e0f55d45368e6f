// Tensors in host memory that pass for tensors on a device, once they are marked: the shim's answers about them are
// replaced. For one source of a library.
#pragma once

#include <dlfcn.h>

#include <mutex>
#include <set>

#include "tensors/torch_shim.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::mutex g_marks;  // guards what follows
std::set<void*> g_marked;

}  // namespace

EXPORT void f_mark(AtenTensorHandle tensor) {
  const std::lock_guard<std::mutex> lock(g_marks);
  g_marked.insert(tensor);
}
EXPORT void f_unmark(AtenTensorHandle tensor) {
  const std::lock_guard<std::mutex> lock(g_marks);
  g_marked.erase(tensor);
}
// The library is linked so that these come before libtorch's.
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* type) {
  const std::lock_guard<std::mutex> lock(g_marks);
  *type = g_marked.count(tensor) != 0 ? 1 : 0;
  return AOTI_TORCH_SUCCESS;
}
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* index) {
  const std::lock_guard<std::mutex> lock(g_marks);
  *index = g_marked.count(tensor) != 0 ? 0 : -1;
  return AOTI_TORCH_SUCCESS;
}

// Memory of the device is host memory.
AOTITorchError aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                        int32_t, int32_t, AtenTensorHandle* tensor) {
  static const auto next =
      reinterpret_cast<decltype(&aoti_torch_empty_strided)>(dlsym(RTLD_NEXT, "aoti_torch_empty_strided"));
  return next(ndim, sizes, strides, dtype, 0, 0, tensor);
}
extern "C" AOTITorchError torch_from_blob(void* data, int64_t ndim, const int64_t* sizes, const int64_t* strides,
                                          int64_t offset, int32_t dtype, int32_t, int32_t, AtenTensorHandle* tensor,
                                          int32_t layout, const uint8_t* metadata, int64_t metadata_bytes,
                                          void (*deleter)(void*, void*), void* context) {
  static const auto next = reinterpret_cast<decltype(&torch_from_blob)>(dlsym(RTLD_NEXT, "torch_from_blob"));
  return next(data, ndim, sizes, strides, offset, dtype, 0, -1, tensor, layout, metadata, metadata_bytes, deleter,
              context);
}
