// Turns the calls that were interposed into launches of the generated tables.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "interposer.h"

#define AOTI_DEBUG_EXPORT __attribute__((visibility("default")))

// Called by the process that runs the model.
extern "C" {
AOTI_DEBUG_EXPORT const AotiDebugHooks* aoti_debug_interposer_hooks(void);
AOTI_DEBUG_EXPORT void aoti_debug_interposer_begin(void* stream);
AOTI_DEBUG_EXPORT void aoti_debug_interposer_end(uint32_t failed);
}

namespace aoti_debug {
namespace {

constexpr uint32_t kMaxValues = sizeof(AotiDebugInterposedCall::values) / sizeof(AotiDebugValue);
constexpr uint32_t kWarp = 32;

// The head of CUlaunchConfig.
struct LaunchConfig {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};

using NameOf = int (*)(const char** name, const void* function);  // cuFuncGetName

std::mutex g_mutex;                                 // guards what follows
std::unordered_map<const void*, uint32_t> g_names;  // CUfunction -> index of a kernel
thread_local AotiDebugCall t_call;
thread_local bool t_in_call = false;

// Reads the arguments of a call one by one, in order.
class Arguments {
 public:
  explicit Arguments(const AotiDebugFrame* frame) : frame_(frame) {}

  AotiDebugValue next(uint8_t type) {
    AotiDebugValue value{0, type, 0};
    const bool is_float = type == AOTI_DEBUG_F32 || type == AOTI_DEBUG_F64;
    const uint64_t bits = is_float ? next_float() : next_integer();
    switch (type) {
      case AOTI_DEBUG_F32: {
        float narrow;
        memcpy(&narrow, &bits, sizeof(narrow));
        const auto wide = static_cast<double>(narrow);
        memcpy(&value.bits, &wide, sizeof(wide));
        break;
      }
      case AOTI_DEBUG_BOOL:
        value.bits = (bits & 0xff) != 0;
        break;
      case AOTI_DEBUG_I8:
        value.bits = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(bits)));
        break;
      case AOTI_DEBUG_I16:
        value.bits = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int16_t>(bits)));
        break;
      case AOTI_DEBUG_I32:
        value.bits = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(bits)));
        break;
      case AOTI_DEBUG_U8:
        value.bits = static_cast<uint8_t>(bits);
        break;
      case AOTI_DEBUG_U16:
        value.bits = static_cast<uint16_t>(bits);
        break;
      case AOTI_DEBUG_U32:
        value.bits = static_cast<uint32_t>(bits);
        break;
      default:
        value.bits = bits;
    }
    return value;
  }

 private:
  uint64_t next_integer() { return integers_ < 6 ? frame_->integers[integers_++] : frame_->stack[on_stack_++]; }
  uint64_t next_float() { return floats_ < 8 ? frame_->floats[floats_++][0] : frame_->stack[on_stack_++]; }

  const AotiDebugFrame* frame_;
  uint32_t integers_ = 0;
  uint32_t floats_ = 0;
  uint32_t on_stack_ = 0;
};

uint32_t kernel_named(const char* name) {
  for (uint32_t i = 0; i < aoti_debug_package.n_kernels; ++i) {
    if (strcmp(aoti_debug_package.kernels[i].name, name) == 0) return i;
  }
  return aoti_debug_package.n_kernels - 1;  // the one that stands for all others
}

uint32_t kernel_of(const void* function) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto known = g_names.find(function);
  if (known != g_names.end()) return known->second;
  static const auto name_of = reinterpret_cast<NameOf>(dlsym(RTLD_DEFAULT, "cuFuncGetName"));
  const char* name = "";
  if (name_of == nullptr || name_of(&name, function) != 0) name = "";
  return g_names[function] = kernel_named(name);
}

void launch_kernel(AotiDebugInterposedCall* call, const AotiDebugInterposed& symbol, const void* function,
                   const LaunchConfig& config, void* const* args) {
  const uint32_t kernel = kernel_of(function);
  const uint32_t site = symbol.first_site + std::min(kernel, symbol.n_sites - 1);
  aoti_debug_launch_begin(&call->launch, &aoti_debug_package.sites[site], call->values, 0);
  const uint32_t threads = config.block[0] * config.block[1] * config.block[2];
  aoti_debug_grid(&aoti_debug_package.kernels[kernel], config.grid, (threads + kWarp - 1) / kWarp, config.shared_bytes,
                  args);
}

template <class T>
T* pointer(uint64_t bits) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(bits));
}

// cuLaunchKernel(function, grid x y z, block x y z, shared bytes, stream, parameters, extra)
void launch_by_arguments(AotiDebugInterposedCall* call, const AotiDebugInterposed& symbol,
                         const AotiDebugFrame* frame) {
  Arguments arguments(frame);
  const void* function = pointer<const void>(arguments.next(AOTI_DEBUG_ADDRESS).bits);
  LaunchConfig config;
  for (uint32_t& size : config.grid) size = static_cast<uint32_t>(arguments.next(AOTI_DEBUG_U32).bits);
  for (uint32_t& size : config.block) size = static_cast<uint32_t>(arguments.next(AOTI_DEBUG_U32).bits);
  config.shared_bytes = static_cast<uint32_t>(arguments.next(AOTI_DEBUG_U32).bits);
  arguments.next(AOTI_DEBUG_ADDRESS);
  launch_kernel(call, symbol, function, config, pointer<void*>(arguments.next(AOTI_DEBUG_ADDRESS).bits));
}

// cuLaunchKernelEx(config, function, parameters, extra)
void launch_by_config(AotiDebugInterposedCall* call, const AotiDebugInterposed& symbol, const AotiDebugFrame* frame) {
  const LaunchConfig& config = *pointer<const LaunchConfig>(frame->integers[0]);
  launch_kernel(call, symbol, pointer<const void>(frame->integers[1]), config, pointer<void*>(frame->integers[2]));
}

void launch_of(AotiDebugInterposedCall* call, const AotiDebugInterposed& symbol, uint32_t site,
               const AotiDebugFrame* frame) {
  Arguments arguments(frame);
  const uint32_t count = std::min(symbol.n_params, kMaxValues);
  for (uint32_t i = 0; i < count; ++i) call->values[i] = arguments.next(symbol.params[i]);
  aoti_debug_launch_begin(&call->launch, &aoti_debug_package.sites[site], call->values, count);
}

void enter(AotiDebugInterposedCall* call, uint32_t index, const AotiDebugFrame* frame) {
  const AotiDebugInterposed& symbol = aoti_debug_interposed[index];
  call->symbol = index;
  call->launched = t_in_call && symbol.action != AOTI_DEBUG_ACTION_NAME;
  if (!call->launched) return;
  switch (symbol.action) {
    case AOTI_DEBUG_ACTION_NODE: {
      const auto node = static_cast<uint32_t>(frame->integers[1]);
      return launch_of(call, symbol, symbol.first_site + std::min(node, symbol.n_sites - 1), frame);
    }
    case AOTI_DEBUG_ACTION_KERNEL:
      return launch_by_arguments(call, symbol, frame);
    case AOTI_DEBUG_ACTION_CONFIG:
      return launch_by_config(call, symbol, frame);
    default:
      return launch_of(call, symbol, symbol.first_site, frame);
  }
}

void name_kernel(const AotiDebugFrame* frame) {
  if (static_cast<int32_t>(frame->rax) != 0) return;
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_names[*pointer<const void*>(frame->integers[0])] = kernel_named(pointer<const char>(frame->integers[2]));
}

void leave(AotiDebugInterposedCall* call, const AotiDebugFrame* frame, const char* message) {
  const AotiDebugInterposed& symbol = aoti_debug_interposed[call->symbol];
  if (symbol.action == AOTI_DEBUG_ACTION_NAME && message == nullptr) name_kernel(frame);
  if (!call->launched) return;
  if (message != nullptr) return aoti_debug_launch_end(&call->launch, call->values, -1, message);
  const int32_t status = symbol.returns != 0 ? static_cast<int32_t>(frame->rax) : 0;
  char text[96] = "";
  const bool of_driver = symbol.action == AOTI_DEBUG_ACTION_KERNEL || symbol.action == AOTI_DEBUG_ACTION_CONFIG;
  if (of_driver && status != 0) snprintf(text, sizeof(text), "%s returned CUDA error %d", symbol.symbol, status);
  aoti_debug_launch_end(&call->launch, call->values, status, text[0] != '\0' ? text : nullptr);
}

constexpr AotiDebugHooks kHooks{enter, leave};

}  // namespace
}  // namespace aoti_debug

const AotiDebugHooks* aoti_debug_interposer_hooks(void) { return &aoti_debug::kHooks; }

void aoti_debug_interposer_begin(void* stream) {
  if (aoti_debug_level_of_call(AOTI_DEBUG_CALL_MODEL) == 0) return;
  aoti_debug_call_begin(&aoti_debug::t_call, AOTI_DEBUG_CALL_MODEL, &aoti_debug::kHooks, stream);
  aoti_debug::t_in_call = true;
}

void aoti_debug_interposer_end(uint32_t failed) {
  if (!aoti_debug::t_in_call) return;
  aoti_debug::t_in_call = false;
  aoti_debug_call_end(&aoti_debug::t_call, failed);
}
