// Which slots are tensors, and which tensors can be read.
#pragma once

#include <cstdint>
#include <string>

#include "aoti_debug.h"
#include "tensor_meta.h"

namespace aoti_debug {

inline bool is_tensor_form(uint8_t form) { return form <= AOTI_DEBUG_POINTER; }

// Whether what the slot shows holds values before the launch, not uninitialised memory.
inline bool has_data_before(const AotiDebugSlot& slot) { return slot.role != AOTI_DEBUG_ROLE_OUT && slot.fresh == 0; }

// Whether an earlier slot is the same tensor: the same expression may be passed twice, under one name.
bool is_repeated(const AotiDebugSite& site, uint32_t slot);

bool is_readable(const TensorMeta& meta);

// Why the elements cannot be read; "" where they can.
std::string unreadable(const TensorMeta& meta);

}  // namespace aoti_debug
