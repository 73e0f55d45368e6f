#include "guarded_buffers.h"

#include <dlfcn.h>
#include <string.h>

#include <algorithm>

#include "formats/guard_zones.h"
#include "tensors/dtype.h"
#include "tensors/tensor_meta.h"
#include "tensors/torch_shim.h"

// Newer than the shim that some versions of torch have: null where it is missing.
extern "C" __attribute__((weak)) AOTITorchError torch_from_blob(
    void* data, int64_t ndim, const int64_t* sizes, const int64_t* strides, int64_t storage_offset, int32_t dtype,
    int32_t device_type, int32_t device_index, AtenTensorHandle* tensor, int32_t layout, const uint8_t* metadata,
    int64_t metadata_bytes, void (*deleter)(void* data, void* context), void* context);

namespace aoti_debug {
namespace {

// Tensors with guards may outlive the package, and their memory is given back by code of this library.
void stay_loaded() {
  static const bool done = [] {
    Dl_info info;
    if (dladdr(reinterpret_cast<const void*>(&stay_loaded), &info) == 0) return false;
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;
  }();
  static_cast<void>(done);
}

// Bytes from element 0 to behind the last element in memory, of a tensor that is not empty.
uint64_t extent_bytes(const BufferRequest& request) {
  uint64_t last = 0;
  for (int64_t d = 0; d < request.ndim; ++d) {
    last += static_cast<uint64_t>((request.sizes[d] - 1) * request.strides[d]);
  }
  return (last + 1) * dtype(request.dtype).bytes;
}

uint64_t* words_of(const GuardedMemory& memory) {
  return reinterpret_cast<uint64_t*>(memory.data - guard_bytes(memory.bytes));
}

// Writes what belongs to the zone and leaves the rest of its first word.
void fill(const GuardedMemory& memory, const Zone& zone) {
  uint64_t* const words = words_of(memory);
  for (uint64_t i = zone.begin / 8; i < zone.end / 8; ++i) {
    const uint64_t word = guard_word(i);
    const uint64_t skip = i * 8 < zone.begin ? zone.begin - i * 8 : 0;
    memcpy(reinterpret_cast<uint8_t*>(words + i) + skip, reinterpret_cast<const uint8_t*>(&word) + skip, 8 - skip);
  }
}

bool is_intact(const GuardedMemory& memory, const Zone& zone) {
  const uint64_t* const words = words_of(memory);
  uint64_t differing = 0;
  for (uint64_t i = zone.begin / 8 + 1; i < zone.end / 8; ++i) differing |= words[i] ^ guard_word(i);
  const uint64_t first = zone.begin / 8;
  return (differing | ((words[first] ^ guard_word(first)) & zone.mask(first))) == 0;
}

GuardDamage describe(const GuardedLaunch& launch, const GuardedMemory& memory, const Zone& zone) {
  const auto* const base = reinterpret_cast<const uint8_t*>(words_of(memory));
  const auto guard = static_cast<int64_t>(guard_bytes(memory.bytes));
  GuardDamage damage{};
  damage.call = launch.call;
  damage.launch = launch.launch;
  damage.kind = static_cast<uint8_t>(launch.kind);
  damage.allocation = memory.allocation;
  damage.data = memory.data;
  damage.bytes = memory.bytes;
  for (uint64_t at = zone.begin; at < zone.end; ++at) {
    const uint64_t word = guard_word(at / 8);
    if (base[at] == reinterpret_cast<const uint8_t*>(&word)[at % 8]) continue;
    if (damage.damaged++ == 0) {
      damage.first = static_cast<int64_t>(at) - guard;
      memcpy(damage.found, base + at, std::min<uint64_t>(zone.end - at, sizeof(damage.found)));
    }
    damage.last = static_cast<int64_t>(at) - guard;
  }
  return damage;
}

}  // namespace

// What a guarded tensor's storage holds on to.
struct GuardedBuffers::Buffer {
  std::shared_ptr<GuardedBuffers> owner;
  AtenTensorHandle base = nullptr;  // of zones and buffer
  GuardedMemory memory{};
  bool on_host = true;

  ~Buffer() {
    if (base != nullptr) aoti_torch_delete_tensor_object(base);
  }
};

void GuardedBuffers::release(void*, void* buffer) {
  const std::unique_ptr<Buffer> released(static_cast<Buffer*>(buffer));
  released->owner->remove(released.get());
}

void GuardedBuffers::remove(const Buffer* buffer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find(live_.begin(), live_.end(), buffer);
  if (found != live_.end()) live_.erase(found);
}

std::string GuardedBuffers::allocate(const BufferRequest& request, void* stream, void** tensor) {
  auto buffer = std::make_unique<Buffer>();
  buffer->on_host = request.device_type == kDeviceCpu;
  if (dtype(request.dtype).bytes == 0) return "dtype " + std::to_string(request.dtype) + " is unknown";
  if (torch_from_blob == nullptr) return "this torch lacks torch_from_blob";
  if (!buffer->on_host && !device::owns(request.device_type)) {
    return "it is on " + device_name(request.device_type, request.device_index);
  }
  const uint64_t bytes = extent_bytes(request);

  const auto size = static_cast<int64_t>(guarded_bytes(bytes));
  const int64_t stride = 1;
  void* base = nullptr;
  if (aoti_torch_empty_strided(1, &size, &stride, kUInt8, request.device_type, request.device_index, &buffer->base) !=
          AOTI_TORCH_SUCCESS ||
      aoti_torch_get_data_ptr(buffer->base, &base) != AOTI_TORCH_SUCCESS) {
    return "no memory for its guards";
  }
  GuardedMemory& memory = buffer->memory;
  memory = {reinterpret_cast<uintptr_t>(base) + guard_bytes(bytes), bytes, request.allocation, 0};
  if (buffer->on_host) {
    memset(reinterpret_cast<void*>(memory.data), poison_, bytes);
    fill(memory, zone_before(bytes));
    fill(memory, zone_after(bytes));
  } else if (!device::fill_guarded(stream, memory, poison_)) {
    return "the device did not fill its guards";
  }
  AtenTensorHandle made = nullptr;
  const int32_t index = buffer->on_host ? -1 : request.device_index;  // torch compares it with that of the memory
  stay_loaded();
  buffer->owner = shared_from_this();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    live_.push_back(buffer.get());
  }
  if (torch_from_blob(reinterpret_cast<void*>(memory.data), request.ndim, request.sizes, request.strides, 0,
                      request.dtype, request.device_type, index, &made, kLayoutStrided, nullptr, 0, release,
                      buffer.get()) != AOTI_TORCH_SUCCESS) {
    remove(buffer.get());
    return std::string("torch made no tensor of it: ") + shim_error_text();
  }
  static_cast<void>(buffer.release());  // the tensor's storage has it now
  *tensor = made;
  return "";
}

bool GuardedBuffers::check(void* stream, const GuardedLaunch& launch, std::vector<GuardDamage>* damages) {
  std::vector<GuardedMemory> on_device;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Buffer* buffer : live_) {
    const GuardedMemory& memory = buffer->memory;
    if (!buffer->on_host) {
      on_device.push_back(memory);
      continue;
    }
    for (const Zone& zone : {zone_before(memory.bytes), zone_after(memory.bytes)}) {
      if (is_intact(memory, zone)) continue;
      damages->push_back(describe(launch, memory, zone));
      fill(memory, zone);
    }
  }
  return on_device.empty() ||
         device::check_guards(stream, launch, on_device.data(), static_cast<uint32_t>(on_device.size()));
}

void GuardedBuffers::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_.clear();
}

}  // namespace aoti_debug
