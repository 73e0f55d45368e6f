// The interface between instrumented code, the runtime that is linked beside it, and the tools that read what it wrote.
//
// Generated C++ includes this header and no other of ours. Everything that crosses a boundary is plain old data with
// fixed-width fields. Pointers are borrowed unless a parameter says otherwise; every `const char*` in a static table
// points to a string literal of the generated code.
//
// Functions never throw, and never change a tensor that the model can see unless AOTI_DEBUG_SUBSTITUTE asks for it.
#pragma once

#include <stdint.h>

#define AOTI_DEBUG_ABI 1u

#if defined(__GNUC__)
#define AOTI_DEBUG_HIDDEN __attribute__((visibility("hidden")))
#define AOTI_DEBUG_VISIBLE __attribute__((visibility("default")))
#else
#define AOTI_DEBUG_HIDDEN
#define AOTI_DEBUG_VISIBLE
#endif

#ifdef __cplusplus
extern "C" {
#endif

// How a slot's value is found behind the expression that the call passes.
typedef enum AotiDebugForm {
  AOTI_DEBUG_TENSOR = 0,         // an AtenTensorHandle by value
  AOTI_DEBUG_OUTPUT_SLOT = 1,    // AtenTensorHandle*: garbage before the call, an owned tensor after it, or nullptr
  AOTI_DEBUG_OPTIONAL = 2,       // AtenTensorHandle*: nullptr stands for None
  AOTI_DEBUG_LIST = 3,           // const AtenTensorHandle*: element `element`; a null element is None
  AOTI_DEBUG_OPTIONAL_LIST = 4,  // const AtenTensorHandle**: element `element`; a null pointer is None
  AOTI_DEBUG_POINTER = 5,        // a raw data pointer that travels with the tensor it came from
  AOTI_DEBUG_SCALAR = 6,         // a number by value
  AOTI_DEBUG_SCALAR_REF = 7,     // the address of a number, or nullptr for None
  AOTI_DEBUG_INTS = 8,           // const int64_t*: element `element`
  AOTI_DEBUG_STRING = 9,         // const char*
  AOTI_DEBUG_OPAQUE = 10,        // a stream, a generator, a kernel table: nothing to record
} AotiDebugForm;

typedef enum AotiDebugRole {
  AOTI_DEBUG_ROLE_NONE = 0,     // not a tensor
  AOTI_DEBUG_ROLE_IN = 1,       // read
  AOTI_DEBUG_ROLE_OUT = 2,      // written; what it holds before the launch is uninitialised
  AOTI_DEBUG_ROLE_INOUT = 3,    // read and written
  AOTI_DEBUG_ROLE_UNKNOWN = 4,  // treated as read and written
} AotiDebugRole;

// The C type of a recorded number.
typedef enum AotiDebugType {
  AOTI_DEBUG_NONE = 0,
  AOTI_DEBUG_BOOL = 1,
  AOTI_DEBUG_I8 = 2,
  AOTI_DEBUG_I16 = 3,
  AOTI_DEBUG_I32 = 4,
  AOTI_DEBUG_I64 = 5,
  AOTI_DEBUG_U8 = 6,
  AOTI_DEBUG_U16 = 7,
  AOTI_DEBUG_U32 = 8,
  AOTI_DEBUG_U64 = 9,
  AOTI_DEBUG_F32 = 10,
  AOTI_DEBUG_F64 = 11,
  AOTI_DEBUG_ADDRESS = 12,  // a device or host address
  AOTI_DEBUG_HANDLE = 13,   // an AtenTensorHandle
} AotiDebugType;

// What is to be done with a launch.
typedef enum AotiDebugLaunchAction {
  AOTI_DEBUG_RUN = 0,
  AOTI_DEBUG_SKIP = 1,  // it counts as returned
  AOTI_DEBUG_STOP = 2,  // neither it nor a later one is to run
} AotiDebugLaunchAction;

typedef enum AotiDebugCallKind {
  AOTI_DEBUG_CALL_MODEL = 0,     // run_impl
  AOTI_DEBUG_CALL_CONSTANT = 1,  // _const_run_impl
} AotiDebugCallKind;

// One recorded value of a launch: a tensor argument, an element of a list, a number.
typedef struct AotiDebugSlot {
  const char* name;   // unique in its launch, e.g. "buf4", "l_weight_view", "stride[0]"
  const char* param;  // the callee's parameter, "" if unknown
  uint16_t value;     // which expression of the call it is behind
  int16_t element;    // which element of a list, or -1
  uint8_t form;       // AotiDebugForm
  uint8_t role;       // AotiDebugRole
  uint8_t type;       // AotiDebugType of what a SCALAR_REF points to; otherwise NONE (the value says it)
  uint8_t fresh;      // 1: in-out or unknown, and nothing has written its memory before the launch: it holds no data
} AotiDebugSlot;

typedef struct AotiDebugSite {
  const char* kernel;  // "triton_poi_fused_0", "aoti_torch_cpu_addmm_out", "mylib::op.default"
  const AotiDebugSlot* slots;
  uint32_t n_slots;
  uint32_t id;          // its index in AotiDebugPackage::sites and in the manifest
  uint8_t synchronous;  // 1: the host has waited for the device when the call returns
  uint8_t grid;         // 1: it counts as launched only once aoti_debug_grid was called (Triton)
  uint8_t side_stream;  // 1: it runs on another stream than its call
  uint8_t reserved[5];
  const char* modules;  // paths of the modules that its operations belong to, a line each; nullptr or "": unknown
  const char* lines;    // places in the model's source, "/home/u/model.py:23", a line each
} AotiDebugSite;

// A compiled kernel that launchKernel starts: the types behind its void* arguments.
typedef struct AotiDebugKernel {
  const char* name;
  const uint8_t* types;  // AotiDebugType of each argument
  uint32_t n_types;
  uint32_t id;  // its index in AotiDebugPackage::kernels and in the manifest
} AotiDebugKernel;

typedef struct AotiDebugPackage {
  uint32_t abi;    // AOTI_DEBUG_ABI of the generator
  uint32_t level;  // the level in force where the environment names none
  const AotiDebugSite* sites;
  const AotiDebugKernel* kernels;
  uint32_t n_sites;
  uint32_t n_kernels;
  const char* filter;    // baked filter patterns, comma-separated; "" for all
  const char* manifest;  // the manifest's JSON text
  uint64_t manifest_bytes;
  const char* module_filter;  // baked patterns of module paths and of lines, comma-separated; nullptr or "": all
  const char* line_filter;
} AotiDebugPackage;

// Defined once by the generated tables (sites.cpp).
extern AOTI_DEBUG_HIDDEN const AotiDebugPackage aoti_debug_package;

// A value as the call passes it. `bits` holds an integer sign- or zero-extended to 64 bits, a float widened to double
// (its pattern), an address, or a handle.
typedef struct AotiDebugValue {
  uint64_t bits;
  uint32_t type;  // AotiDebugType
  uint32_t reserved;
} AotiDebugValue;

// Storage of a running call or launch; lives on the caller's stack between begin and end.
typedef struct AotiDebugCall {
  uint64_t opaque[8];
} AotiDebugCall;
typedef struct AotiDebugLaunch {
  uint64_t opaque[8];
} AotiDebugLaunch;

// A tensor of a launch, as an inspector gets it: a function of the process that loaded the package.
typedef struct AotiDebugInspection {
  const char* kernel;
  const char* argument;
  void* tensor;  // a new AtenTensorHandle of the same tensor; the inspector owns it; nullptr: the last call has changed
                 // it
  uint32_t call;
  uint32_t launch;
  uint32_t site;
  uint8_t kind;   // AotiDebugCallKind
  uint8_t phase;  // 0 before the launch, 1 after it
  uint8_t role;   // AotiDebugRole
  uint8_t reserved;
} AotiDebugInspection;

// Not 0: no further launch is to run.
typedef int32_t (*AotiDebugInspector)(const AotiDebugInspection* inspection);

// 0 where the level is 0: generated code then goes straight to the kernel. Read once per process, and again after
// aoti_debug_end_run.
uint32_t aoti_debug_level(void) AOTI_DEBUG_HIDDEN;

// The same at the beginning of a call: first come the settings of somebody who has attached to the process.
uint32_t aoti_debug_level_of_call(uint32_t kind) AOTI_DEBUG_HIDDEN;

// A container of models was made (1) or deleted (-1). The run ends with the last one.
void aoti_debug_containers(int32_t change) AOTI_DEBUG_HIDDEN;

// For the program that has loaded the package, and finds it by its name: ends the run, of which nothing is recorded any
// more. The next call reads the environment again, and begins another run. Returns 0, and does nothing, while a thread
// is within a call. No call begins meanwhile.
uint32_t aoti_debug_end_run(void) AOTI_DEBUG_VISIBLE;

// Brackets one execution of run_impl or _const_run_impl. `model` tells concurrent runners apart. `stream` is the
// device stream (nullptr on a CPU). `failed` is 1 when an exception is leaving.
void aoti_debug_call_begin(AotiDebugCall* call, uint32_t kind, const void* model, void* stream) AOTI_DEBUG_HIDDEN;
void aoti_debug_call_end(AotiDebugCall* call, uint32_t failed) AOTI_DEBUG_HIDDEN;

// Brackets one launch. `values` has one entry an expression of the call. `status` is what the callee returned: 0, or
// an AOTITorchError. `message` (may be nullptr) is the text of an exception that left the callee.
// The beginning returns an AotiDebugLaunchAction; a launch that is to stop has no end.
uint32_t aoti_debug_launch_begin(AotiDebugLaunch* launch, const AotiDebugSite* site, const AotiDebugValue* values,
                                 uint32_t n_values) AOTI_DEBUG_HIDDEN;
void aoti_debug_launch_end(AotiDebugLaunch* launch, const AotiDebugValue* values, int32_t status,
                           const char* message) AOTI_DEBUG_HIDDEN;

// Why no further launch is to run: a watchpoint was hit that stops, or a launch before which to stop. nullptr where
// launches may run.
const char* aoti_debug_stopped(void) AOTI_DEBUG_HIDDEN;

// Names the stream of the calling thread's next launch, which is another one than its call's.
void aoti_debug_stream(void* stream) AOTI_DEBUG_HIDDEN;

// Reports what launchKernel is about to start for the calling thread's innermost launch. `args` points to one address
// an argument, as cuLaunchKernel takes them.
void aoti_debug_grid(const AotiDebugKernel* kernel, const uint32_t grid[3], uint32_t num_warps, uint32_t shared_bytes,
                     void* const* args) AOTI_DEBUG_HIDDEN;

// Allocates a buffer of the wrapper between guards. `allocation` is its index in the manifest's allocations, `tensor`
// (an AtenTensorHandle*) receives a new reference; the other parameters are aoti_torch_empty_strided's.
// 0: there are no guards, or none around this buffer: nothing was done, and the wrapper allocates it as ever.
uint32_t aoti_debug_allocate(uint32_t allocation, const char* name, int64_t ndim, const int64_t* sizes,
                             const int64_t* strides, int32_t dtype, int32_t device_type, int32_t device_index,
                             void* tensor) AOTI_DEBUG_HIDDEN;

// Count the iterations of a while loop around the launches of the calling thread.
void aoti_debug_loop_enter(void) AOTI_DEBUG_HIDDEN;
void aoti_debug_loop_next(void) AOTI_DEBUG_HIDDEN;
void aoti_debug_loop_leave(void) AOTI_DEBUG_HIDDEN;

// Notes that the host is about to change the model's weights: `what` it does, on the side that is in use or on the
// other one, with all weights or with some.
void aoti_debug_weights(const char* what, uint32_t inactive, uint32_t all) AOTI_DEBUG_HIDDEN;

#ifdef __cplusplus
}  // extern "C"
#endif

// Tables of launch sites call nothing.
#if defined(__cplusplus) && !defined(AOTI_DEBUG_TABLES_ONLY)
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

// What generated code calls: templates that turn a call's arguments into AotiDebugValues. They own no state.
namespace aoti_debug {
namespace {

template <class Handle, class Pointer>
struct TensorPointer {
  Handle tensor;
  Pointer data;
};

// A raw data pointer beside the tensor (RAII handle, constant handle or plain handle) that it came from.
template <class Tensor, class Pointer>
inline auto with_tensor(const Tensor& tensor, Pointer data) {
  return TensorPointer<decltype(tensor.get()), Pointer>{tensor.get(), data};
}

template <class T>
struct IsTensorPointer : std::false_type {};
template <class Handle, class Pointer>
struct IsTensorPointer<TensorPointer<Handle, Pointer>> : std::true_type {};

template <class T>
inline __attribute__((always_inline)) decltype(auto) unwrap(T&& argument) {
  if constexpr (IsTensorPointer<std::decay_t<T>>::value) {
    return (argument.data);
  } else {
    return std::forward<T>(argument);
  }
}

template <class T, class = void>
struct HasGet : std::false_type {};
template <class T>
struct HasGet<T, std::void_t<decltype(std::declval<const T&>().get())>> : std::true_type {};

template <class T>
constexpr uint32_t number_type() {
  if (std::is_same_v<T, bool>) return AOTI_DEBUG_BOOL;
  if (std::is_same_v<T, float>) return AOTI_DEBUG_F32;
  if (std::is_floating_point_v<T>) return AOTI_DEBUG_F64;
  if (std::is_signed_v<T>) {
    return sizeof(T) == 1   ? AOTI_DEBUG_I8
           : sizeof(T) == 2 ? AOTI_DEBUG_I16
           : sizeof(T) == 4 ? AOTI_DEBUG_I32
                            : AOTI_DEBUG_I64;
  }
  return sizeof(T) == 1   ? AOTI_DEBUG_U8
         : sizeof(T) == 2 ? AOTI_DEBUG_U16
         : sizeof(T) == 4 ? AOTI_DEBUG_U32
                          : AOTI_DEBUG_U64;
}

template <class T>
inline __attribute__((always_inline)) AotiDebugValue describe(const T& argument) {
  AotiDebugValue value{0, AOTI_DEBUG_NONE, 0};
  if constexpr (IsTensorPointer<T>::value) {
    value.bits = reinterpret_cast<uintptr_t>(argument.tensor);
    value.type = AOTI_DEBUG_HANDLE;
  } else if constexpr (std::is_floating_point_v<T>) {
    auto widened = static_cast<double>(argument);
    __builtin_memcpy(&value.bits, &widened, sizeof(widened));
    value.type = number_type<T>();
  } else if constexpr (std::is_integral_v<T>) {
    value.bits = static_cast<uint64_t>(static_cast<int64_t>(argument));
    value.type = number_type<T>();
  } else if constexpr (std::is_null_pointer_v<T>) {
    value.type = AOTI_DEBUG_ADDRESS;
  } else if constexpr (std::is_pointer_v<T>) {
    value.bits = reinterpret_cast<uintptr_t>(argument);
    value.type = AOTI_DEBUG_ADDRESS;
  } else if constexpr (std::is_array_v<T>) {
    value.bits = reinterpret_cast<uintptr_t>(&argument[0]);
    value.type = AOTI_DEBUG_ADDRESS;
  } else if constexpr (HasGet<T>::value) {
    value.bits = reinterpret_cast<uintptr_t>(argument.get());
    value.type = AOTI_DEBUG_HANDLE;
  }
  return value;
}

// Out of line and apart from the generated code, which at level 0 then stays as dense as it was; shared by calls of
// like arguments. True: the launch is to be skipped.
template <class... Arguments>
__attribute__((noinline, cold)) bool begin(AotiDebugLaunch* launch, const AotiDebugSite& site, AotiDebugValue* values,
                                           const Arguments&... arguments) {
  if (const char* why = aoti_debug_stopped()) throw std::runtime_error(why);
  AotiDebugValue* value = values;
  static_cast<void>(value);
  ((*value++ = describe<Arguments>(arguments)), ...);
  const uint32_t action = aoti_debug_launch_begin(launch, &site, values, sizeof...(Arguments));
  if (action == AOTI_DEBUG_STOP) throw std::runtime_error(aoti_debug_stopped());
  return action == AOTI_DEBUG_SKIP;
}

// Ends a launch with the exception that is being handled.
__attribute__((noinline, cold)) inline void end_with_exception(AotiDebugLaunch* launch, const AotiDebugValue* values) {
  try {
    throw;
  } catch (const std::exception& error) {
    aoti_debug_launch_end(launch, values, -1, error.what());
  } catch (...) {
    aoti_debug_launch_end(launch, values, -1, "an exception that is no std::exception");
  }
}

// Runs `call(arguments...)` between the two records of a launch. Arguments are evaluated once, by the caller.
template <class Call, class... Arguments>
inline __attribute__((always_inline)) decltype(auto) launch(const AotiDebugSite& site, Call&& call,
                                                            Arguments&&... arguments) {
  using Result = decltype(call(std::forward<Arguments>(arguments)...));
  AotiDebugValue values[sizeof...(Arguments) + 1];
  AotiDebugLaunch launch;
  const bool active = aoti_debug_level() != 0;
  const bool skipped = __builtin_expect(active, 0) && begin(&launch, site, values, arguments...);
  try {
    if constexpr (std::is_void_v<Result>) {
      if (__builtin_expect(!skipped, 1)) call(std::forward<Arguments>(arguments)...);
      if (__builtin_expect(active, 0)) aoti_debug_launch_end(&launch, values, 0, nullptr);
    } else {
      Result result =
          __builtin_expect(skipped, 0) ? static_cast<Result>(0) : call(std::forward<Arguments>(arguments)...);
      if (__builtin_expect(active, 0)) aoti_debug_launch_end(&launch, values, static_cast<int32_t>(result), nullptr);
      return static_cast<Result>(result);
    }
  } catch (...) {
    if (active) end_with_exception(&launch, values);
    throw;
  }
}

// Throws what torch's check of a status throws. `call`: the text of the call that returned it.
[[noreturn]] __attribute__((noinline, cold)) inline void throw_failed(const char* call, const char* file, int line) {
  throw std::runtime_error(std::string(call) + " API call failed at " + file + ", line " + std::to_string(line));
}

// The same on another stream than the call's.
template <class Call, class... Arguments>
inline __attribute__((always_inline)) decltype(auto) launch_on(void* stream, const AotiDebugSite& site, Call&& call,
                                                               Arguments&&... arguments) {
  if (__builtin_expect(aoti_debug_level() != 0, 0)) aoti_debug_stream(stream);
  return launch(site, std::forward<Call>(call), std::forward<Arguments>(arguments)...);
}

template <class Allocator, class Handle>
__attribute__((noinline, cold)) auto allocate_guarded(uint32_t allocation, const char* name, Allocator allocator,
                                                      int64_t ndim, const int64_t* sizes, const int64_t* strides,
                                                      int32_t dtype, int32_t device_type, int32_t device_index,
                                                      Handle* tensor) {
  using Error = decltype(allocator(ndim, sizes, strides, dtype, device_type, device_index, tensor));
  if (aoti_debug_allocate(allocation, name, ndim, sizes, strides, dtype, device_type, device_index, tensor) != 0) {
    return static_cast<Error>(0);
  }
  return allocator(ndim, sizes, strides, dtype, device_type, device_index, tensor);
}

// aoti_torch_empty_strided, the `allocator`, for a buffer of the wrapper.
template <class Allocator, class Handle>
inline __attribute__((always_inline)) auto allocate(uint32_t allocation, const char* name, Allocator allocator,
                                                    int64_t ndim, const int64_t* sizes, const int64_t* strides,
                                                    int32_t dtype, int32_t device_type, int32_t device_index,
                                                    Handle* tensor) {
  if (__builtin_expect(aoti_debug_level() != 0, 0)) {
    return allocate_guarded(allocation, name, allocator, ndim, sizes, strides, dtype, device_type, device_index,
                            tensor);
  }
  return allocator(ndim, sizes, strides, dtype, device_type, device_index, tensor);
}

class Call {
 public:
  Call(uint32_t kind, const void* model, void* stream)
      : active_(aoti_debug_level_of_call(kind) != 0), exceptions_(std::uncaught_exceptions()) {
    if (active_) aoti_debug_call_begin(&call_, kind, model, stream);
  }
  ~Call() {
    if (active_) aoti_debug_call_end(&call_, std::uncaught_exceptions() > exceptions_ ? 1u : 0u);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  bool active_;
  int exceptions_;
  AotiDebugCall call_;
};

class Loop {
 public:
  Loop() : active_(aoti_debug_level() != 0) {
    if (active_) aoti_debug_loop_enter();
  }
  ~Loop() {
    if (active_) aoti_debug_loop_leave();
  }
  void next() {
    if (active_) aoti_debug_loop_next();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

 private:
  bool active_;
};

}  // namespace
}  // namespace aoti_debug
#endif
