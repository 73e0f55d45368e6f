// A model as generated code writes it: every form of an argument, loops, a call within a call, buffers with guards, and
// launches that fail. `sanitized_call` runs it once and returns a checksum of what it computed.

#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "aoti_debug.h"
#include "tensors/dtype.h"
#include "tensors/torch_shim.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT void f_mark(AtenTensorHandle tensor);
EXPORT void f_unmark(AtenTensorHandle tensor);

namespace {

constexpr AotiDebugSlot kFill[] = {
    {"out", "", 0, -1, AOTI_DEBUG_POINTER, AOTI_DEBUG_ROLE_OUT, AOTI_DEBUG_NONE, 0},
    {"seed", "", 1, -1, AOTI_DEBUG_SCALAR, AOTI_DEBUG_ROLE_NONE, AOTI_DEBUG_NONE, 0},
};
constexpr AotiDebugSlot kAdd[] = {
    {"x", "", 0, -1, AOTI_DEBUG_TENSOR, AOTI_DEBUG_ROLE_IN, AOTI_DEBUG_NONE, 0},
    {"y", "", 1, -1, AOTI_DEBUG_TENSOR, AOTI_DEBUG_ROLE_INOUT, AOTI_DEBUG_NONE, 0},
    {"alpha", "", 2, -1, AOTI_DEBUG_SCALAR_REF, AOTI_DEBUG_ROLE_NONE, AOTI_DEBUG_F64, 0},
    {"bias", "", 3, -1, AOTI_DEBUG_OPTIONAL, AOTI_DEBUG_ROLE_IN, AOTI_DEBUG_NONE, 0},
};
constexpr AotiDebugSlot kMake[] = {
    {"inputs[0]", "", 0, 0, AOTI_DEBUG_LIST, AOTI_DEBUG_ROLE_IN, AOTI_DEBUG_NONE, 0},
    {"inputs[1]", "", 0, 1, AOTI_DEBUG_LIST, AOTI_DEBUG_ROLE_IN, AOTI_DEBUG_NONE, 0},
    {"sizes[0]", "", 1, 0, AOTI_DEBUG_INTS, AOTI_DEBUG_ROLE_NONE, AOTI_DEBUG_NONE, 0},
    {"made", "", 2, -1, AOTI_DEBUG_OUTPUT_SLOT, AOTI_DEBUG_ROLE_OUT, AOTI_DEBUG_NONE, 0},
};
constexpr AotiDebugSlot kGrid[] = {
    {"x", "", 0, -1, AOTI_DEBUG_TENSOR, AOTI_DEBUG_ROLE_INOUT, AOTI_DEBUG_NONE, 0},
};
constexpr AotiDebugSite kSites[] = {
    {"cpp_fused_fill", kFill, 2, 0, 0, 0, 0, {}, "", ""},
    {"aoti_torch_cpu_add", kAdd, 4, 1, 0, 0, 0, {}, "", ""},
    {"aoti_torch_cpu_make", kMake, 4, 2, 0, 0, 0, {}, "", ""},
    {"triton_poi_fused", kGrid, 1, 3, 0, 1, 0, {}, "", ""},
};
constexpr uint8_t kTypes[] = {AOTI_DEBUG_ADDRESS, AOTI_DEBUG_I32};
constexpr AotiDebugKernel kKernels[] = {{"triton_poi_fused", kTypes, 2, 0}};
constexpr char kManifest[] = R"json({"format": 1, "tool_version": "0.1.0", "torch_version": "2.13.0", "device": "cpu",
"level": 3, "filters": [], "kernels": [], "sites": [
{"id": 0, "kernel": "cpp_fused_fill", "kind": "cpp", "function": "run_impl", "callee": "cpp_fused_fill", "line": 1,
"args": [{"name": "out", "param": "", "form": 5, "role": 2, "ctype": "", "text": "out", "value": 0, "element": -1},
{"name": "seed", "param": "", "form": 6, "role": 0, "ctype": "", "text": "seed", "value": 1, "element": -1}],
"provenance": {"certainty": "none"}}, {"id": 1, "kernel": "aoti_torch_cpu_add", "kind": "shim_inplace", "function":
"run_impl", "callee": "aoti_torch_cpu_add", "line": 1, "args": [{"name": "x", "param": "", "form": 0, "role": 1,
"ctype": "", "text": "x", "value": 0, "element": -1}, {"name": "y", "param": "", "form": 0, "role": 3, "ctype": "",
"text": "y", "value": 1, "element": -1}, {"name": "alpha", "param": "", "form": 7, "role": 0, "ctype": "", "text":
"alpha", "value": 2, "element": -1}, {"name": "bias", "param": "", "form": 2, "role": 1, "ctype": "", "text":
"bias", "value": 3, "element": -1}], "provenance": {"certainty": "none"}}, {"id": 2, "kernel":
"aoti_torch_cpu_make", "kind": "shim_alloc", "function": "run_impl", "callee": "aoti_torch_cpu_make", "line": 1,
"args": [{"name": "inputs[0]", "param": "", "form": 3, "role": 1, "ctype": "", "text": "inputs[0]", "value": 0,
"element": 0}, {"name": "inputs[1]", "param": "", "form": 3, "role": 1, "ctype": "", "text": "inputs[1]", "value":
0, "element": 1}, {"name": "sizes[0]", "param": "", "form": 8, "role": 0, "ctype": "", "text": "sizes[0]", "value":
1, "element": 0}, {"name": "made", "param": "", "form": 1, "role": 2, "ctype": "", "text": "made", "value": 2,
"element": -1}], "provenance": {"certainty": "none"}}, {"id": 3, "kernel": "triton_poi_fused", "kind": "triton",
"function": "run_impl", "callee": "triton_poi_fused", "line": 1, "args": [{"name": "x", "param": "", "form": 0,
"role": 3, "ctype": "", "text": "x", "value": 0, "element": -1}], "provenance": {"certainty": "none"}}
]})json";

// The fault of this call, as `sanitized_call` takes it.
enum Fault { kNone, kThrows, kFails };

struct Tensor {
  AtenTensorHandle handle = nullptr;
  bool on_device = false;

  // A buffer as the wrapper allocates it; `type` counts the shapes and dtypes that the model goes through. The largest
  // has a few more elements than one part (machine/parallel.h).
  Tensor(uint32_t type, bool device) : on_device(device) {
    constexpr int32_t kTypes[] = {aoti_debug::kFloat32,  aoti_debug::kInt64,     aoti_debug::kBoolean,
                                  aoti_debug::kBFloat16, aoti_debug::kComplex64, aoti_debug::kUInt8};
    const std::array<int64_t, 3> sizes = type % 7 == 6   ? std::array<int64_t, 3>{0, 3, 4}
                                         : type % 7 == 5 ? std::array<int64_t, 3>{2, 132, 500}
                                                         : std::array<int64_t, 3>{2, 3, 4};
    const std::array<int64_t, 3> dense = {sizes[1] * sizes[2], sizes[2], 1};
    const std::array<int64_t, 3> transposed = {1, 2, 2 * sizes[1]};
    const auto& strides = type % 2 == 0 ? dense : transposed;
    aoti_debug::allocate(type % 8, "buf", aoti_torch_empty_strided, 3, sizes.data(), strides.data(), kTypes[type % 6],
                         device ? 1 : 0, device ? 0 : -1, &handle);
    if (on_device) f_mark(handle);
  }
  explicit Tensor(AtenTensorHandle made) : handle(made) {}
  Tensor(const Tensor&) = delete;
  ~Tensor() {
    if (on_device) f_unmark(handle);
    aoti_torch_delete_tensor_object(handle);
  }
  AtenTensorHandle get() const { return handle; }
  operator AtenTensorHandle() const { return handle; }
  // Kernels go through it in words, of which all shapes take a whole number: a sanitizer looks at every access.
  uint64_t* data() const {
    void* data = nullptr;
    aoti_torch_get_data_ptr(handle, &data);
    return static_cast<uint64_t*>(data);
  }
  uint64_t words() const {
    int64_t bytes = 0;
    aoti_torch_get_storage_size(handle, &bytes);
    return static_cast<uint64_t>(bytes) / sizeof(uint64_t);
  }
};

void fill(uint64_t* out, uint64_t words, uint64_t seed) {
  for (uint64_t i = 0; i < words; ++i) out[i] = (seed + i + 1) * 6364136223846793005u;
}

void add(const uint64_t* from, uint64_t* to, uint64_t words) {
  for (uint64_t i = 0; i < words; ++i) to[i] += from[i];
}

uint64_t hash(const uint64_t* data, uint64_t words) {
  uint64_t sum = 14695981039346656037u;
  for (uint64_t i = 0; i < words; ++i) sum = (sum ^ data[i]) * 1099511628211u;
  return sum;
}

template <class Work, class... Arguments>
decltype(auto) launch(uint32_t site, const Work& work, Arguments&&... arguments) {
  return aoti_debug::launch(
      kSites[site], [&](auto&&... x) -> decltype(auto) { return work(aoti_debug::unwrap(x)...); },
      std::forward<Arguments>(arguments)...);
}

uint64_t run(const void* model, uint32_t type, bool device, Fault fault, void (*within)(), uint32_t depth) {
  void* const stream = device ? const_cast<void*>(model) : nullptr;
  aoti_debug::Call call(depth == 0 ? AOTI_DEBUG_CALL_MODEL : AOTI_DEBUG_CALL_CONSTANT, model, stream);
  uint64_t sum = 0;
  const Tensor x(type, device), y(type, device);
  for (const Tensor* tensor : {&x, &y}) {
    launch(
        0, [&](uint64_t* out, uint64_t seed) { fill(out, tensor->words(), seed); },
        aoti_debug::with_tensor(*tensor, tensor->data()), uint64_t{type});
  }
  if (depth == 0) sum += run(model, type + 1, device, kNone, nullptr, 1);
  {
    aoti_debug::Loop loop;
    for (int turn = 0; turn < 3; ++turn, loop.next()) {
      double alpha = 0.5;
      launch(
          1,
          [&](AtenTensorHandle, AtenTensorHandle, double* factor, AtenTensorHandle*) {
            if (turn == 1 && within != nullptr) within();
            add(x.data(), y.data(), y.words());
            *factor += 0;
            if (turn == 2 && fault == kThrows) throw std::runtime_error("a planted fault");
            return static_cast<AOTITorchError>(turn == 2 && fault == kFails ? 1 : AOTI_TORCH_SUCCESS);
          },
          x, y, &alpha, static_cast<AtenTensorHandle*>(nullptr));
    }
  }
  const AtenTensorHandle inputs[] = {x.get(), y.get()};
  const std::array<int64_t, 1> sizes = {5};
  AtenTensorHandle made = nullptr;
  launch(
      2,
      [](const AtenTensorHandle*, const int64_t* size, AtenTensorHandle* out) {
        const int64_t one = 1;
        return aoti_torch_empty_strided(1, size, &one, aoti_debug::kFloat64, 0, -1, out);
      },
      inputs, sizes.data(), &made);
  const Tensor result(made);
  launch(
      3,
      [&](AtenTensorHandle) {
        int32_t count = 7;
        const uint32_t grid[3] = {1, 2, 3};
        void* address = y.data();
        void* arguments[] = {&address, &count};
        if (aoti_debug_level() != 0 && type % 3 != 0) aoti_debug_grid(&kKernels[0], grid, 4, 128, arguments);
      },
      y);
  return sum + hash(y.data(), y.words());
}

}  // namespace

extern "C" AOTI_DEBUG_HIDDEN const AotiDebugPackage aoti_debug_package = {
    AOTI_DEBUG_ABI, 3, kSites, kKernels, 4, 1, "", kManifest, sizeof(kManifest) - 1, "", ""};

// Args: `model` stands for the runner; `fault` is a Fault; `within` is called in the middle of a launch.
EXPORT uint64_t sanitized_call(const void* model, uint32_t type, uint32_t device, uint32_t fault, void (*within)()) {
  try {
    return run(model, type, device != 0, static_cast<Fault>(fault), within, 0);
  } catch (const std::runtime_error&) {
    return 0;
  }
}

EXPORT void sanitized_containers(int32_t change) { aoti_debug_containers(change); }
