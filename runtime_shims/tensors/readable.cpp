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

std::string unreadable(const TensorMeta& meta) {
  if (meta.layout != kLayoutStrided) return std::string("not read: layout ") + layout_name(meta.layout);
  if (is_quantized(meta.dtype)) return std::string("not read: quantized ") + dtype(meta.dtype).name;
  if (dtype(meta.dtype).kind == Kind::kUnreadable)
    return "not read: dtype " + std::to_string(meta.dtype) + " is unknown";
  if (meta.device_type == kDeviceMeta) return "not read: a meta tensor has no elements";
  if (meta.device_type != kDeviceCpu && !device::owns(meta.device_type)) {
    return "not read: it is on " + device_name(meta.device_type, meta.device_index);
  }
  const device::TensorView view = view_of(meta);
  if (view.numel != 0 && meta.data == 0) return "not read: it has no memory";
  if (!fits_storage(view, meta.storage_offset, meta.storage_bytes)) return "not read: it reaches beyond its storage";
  return "";
}

}  // namespace aoti_debug
