// Buffers that the wrapper allocates, with zones of known bytes around them (guard_zones.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aoti_debug.h"
#include "device/device.h"

namespace aoti_debug {

// What aoti_torch_empty_strided is asked for.
struct BufferRequest {
  uint32_t allocation;
  int64_t ndim;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;

  // Whether it has no elements.
  bool is_empty() const { return std::find(sizes, sizes + ndim, 0) != sizes + ndim; }
};

// The guarded buffers of one call. A buffer is among them until its memory is given back, or the call has ended.
class GuardedBuffers : public std::enable_shared_from_this<GuardedBuffers> {
 public:
  explicit GuardedBuffers(uint8_t poison) : poison_(poison) {}

  // Makes the tensor of a buffer (an AtenTensorHandle: a new reference). "" or why there are no guards around it; then
  // nothing was made.
  std::string allocate(const BufferRequest& request, void* stream, void** tensor);

  // Compares the zones in host memory at once: damage is appended to `damages` and mended. Those in device memory are
  // compared on the stream. False: that could not be enqueued.
  bool check(void* stream, const GuardedLaunch& launch, std::vector<GuardDamage>* damages);

  // From now on nothing is compared.
  void end();

 private:
  struct Buffer;

  void remove(const Buffer* buffer);
  static void release(void* data, void* buffer);

  const uint8_t poison_;
  std::mutex mutex_;  // guards what follows: the last reference to a buffer may be dropped by any thread
  std::vector<Buffer*> live_;
};

}  // namespace aoti_debug
