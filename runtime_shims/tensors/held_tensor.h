// A reference to a tensor beside those that the model has.
#pragma once

#include <cstdint>
#include <utility>

#include "torch_shim.h"

namespace aoti_debug {

// While it lives, the tensor's memory is not given to another one.
class HeldTensor {
 public:
  HeldTensor() = default;  // of none
  // `handle` is an AtenTensorHandle, or 0 for none. Of none, too, where the shim gives an error.
  explicit HeldTensor(uint64_t handle) {
    if (handle == 0) return;
    const auto tensor = reinterpret_cast<AtenTensorHandle>(static_cast<uintptr_t>(handle));
    if (aoti_torch_new_tensor_handle(tensor, &tensor_) != AOTI_TORCH_SUCCESS) tensor_ = nullptr;
  }
  HeldTensor(HeldTensor&& other) noexcept : tensor_(std::exchange(other.tensor_, nullptr)) {}
  HeldTensor& operator=(HeldTensor&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~HeldTensor() {
    if (tensor_ != nullptr) aoti_torch_delete_tensor_object(tensor_);
  }

  explicit operator bool() const { return tensor_ != nullptr; }

 private:
  AtenTensorHandle tensor_ = nullptr;
};

}  // namespace aoti_debug
