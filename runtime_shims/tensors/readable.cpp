#include "readable.h"

#include <string.h>

#include "device/device.h"
#include "dtype.h"
#include "strided.h"

namespace aoti_debug {

bool is_repeated(const AotiDebugSite& site, uint32_t slot) {
  for (uint32_t i = 0; i < slot; ++i) {
    if (is_tensor_form(site.slots[i].form) && strcmp(site.slots[i].name, site.slots[slot].name) == 0) return true;
  }
  return false;
}

bool is_readable(const TensorMeta& meta) {
  const DType& type = dtype(meta.dtype);
  if (meta.layout != kLayoutStrided || is_quantized(meta.dtype) || type.kind == Kind::kUnreadable) return false;
  if (meta.device_type == kDeviceMeta) return false;
  if (meta.device_type != kDeviceCpu && !device::owns(meta.device_type)) return false;
  const device::TensorView view = view_of(meta);
  return view.numel == 0 || (meta.data != 0 && fits_storage(view, meta.storage_offset, meta.storage_bytes));
}

std::string unreadable(const TensorMeta& meta) {
  if (is_readable(meta)) return "";
  if (meta.layout != kLayoutStrided) return std::string("not read: layout ") + layout_name(meta.layout);
  if (is_quantized(meta.dtype)) return std::string("not read: quantized ") + dtype(meta.dtype).name;
  if (dtype(meta.dtype).kind == Kind::kUnreadable)
    return "not read: dtype " + std::to_string(meta.dtype) + " is unknown";
  if (meta.device_type == kDeviceMeta) return "not read: a meta tensor has no elements";
  if (meta.device_type != kDeviceCpu && !device::owns(meta.device_type)) {
    return "not read: it is on " + device_name(meta.device_type, meta.device_index);
  }
  return meta.data == 0 ? "not read: it has no memory" : "not read: it reaches beyond its storage";
}

}  // namespace aoti_debug
