// A generated wrapper in miniature, with just enough of torch's runtime in front of it to compile alone.
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

struct AtenTensorOpaque {
  const char* name;
};
using AtenTensorHandle = AtenTensorOpaque*;
using AOTITorchError = int32_t;
using DeviceStreamType = void*;
using cudaStream_t = void*;
using AOTIProxyExecutorHandle = void*;
using CUfunction = const char*;
using CUdeviceptr = unsigned long long;
#define AOTI_TORCH_SUCCESS 0
#define AOTI_TORCH_ERROR_CODE_CHECK(call)                                                                \
  if ((call) != AOTI_TORCH_SUCCESS) {                                                                    \
    throw std::runtime_error(#call " API call failed at wrapper.cpp, line " + std::to_string(__LINE__)); \
  }

struct RAIIAtenTensorHandle {
  AtenTensorHandle handle = nullptr;
  explicit RAIIAtenTensorHandle(AtenTensorHandle h) : handle(h) {}
  RAIIAtenTensorHandle(const RAIIAtenTensorHandle&) = delete;
  RAIIAtenTensorHandle(RAIIAtenTensorHandle&& other) : handle(other.handle) { other.handle = nullptr; }
  ~RAIIAtenTensorHandle() {
    if (handle != nullptr) std::printf("released %s\n", handle->name);
  }
  operator AtenTensorHandle() const { return handle; }
  AtenTensorHandle get() const { return handle; }
  void* data_ptr() const { return handle; }
};

inline RAIIAtenTensorHandle reinterpret_tensor_wrapper(AtenTensorHandle base, int64_t) {
  std::printf("made a view of %s\n", base->name);
  static AtenTensorOpaque view{"view"};
  return RAIIAtenTensorHandle(&view);
}
inline RAIIAtenTensorHandle wrap_with_raii_handle_if_needed(RAIIAtenTensorHandle&& handle) { return std::move(handle); }
template <class T>
const T& temporary_reference(const T& value) {
  return value;
}

static AtenTensorOpaque made{"made"};

extern "C" {
AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self, double beta) {
  std::printf("addmm_out %s %s %g\n", out->name, self->name, beta);
  return 0;
}
AOTITorchError aoti_torch_cpu_randint_low_out(AtenTensorHandle, int64_t low, const int64_t* size, int64_t n) {
  std::printf("randint %lld %lld %lld\n", (long long)low, (long long)size[0], (long long)n);
  return 0;
}
AOTITorchError aoti_torch_cpu_sort(AtenTensorHandle self, int32_t* stable, AtenTensorHandle* ret0) {
  std::printf("sort %s %d\n", self->name, *stable);
  *ret0 = &made;
  return 0;
}
AOTITorchError aoti_torch_cpu_bernoulli__float(AtenTensorHandle, double p, void** generator) {
  std::printf("bernoulli %g %d\n", p, generator == nullptr);
  return 7;
}
AOTITorchError aoti_torch_cpu_abs(AtenTensorHandle, AtenTensorHandle*) { return 1; }
}
extern "C" void cpp_fused_relu_0(const float* in_ptr0, float* out_ptr0, const int64_t ks0);

namespace torch::aot_inductor {
struct Kernels {
  CUfunction add_kernel_0 = nullptr;
};
struct AOTInductorModel {
  Kernels kernels_;
  std::optional<std::string> cubin_dir_;
  int32_t device_idx_ = 0;
  void run_impl(AtenTensorHandle* inputs, AtenTensorHandle* outputs, DeviceStreamType stream);
};
}  // namespace torch::aot_inductor
using namespace torch::aot_inductor;

static void launchKernel(CUfunction, uint32_t x, uint32_t, uint32_t, uint32_t warps, uint32_t, void* args[], void*) {
  std::printf("launchKernel %u %u %d\n", x, warps, *static_cast<int32_t*>(args[1]));
}

// clang-format off: below is text as the code generator writes it
template <typename x_type_, typename kernels_type_>
static inline void call_add_kernel_0(
    const x_type_& x,
    int64_t n,
    int32_t device_idx_,
    cudaStream_t stream_,
    kernels_type_& kernels_,
    const std::optional<std::string>& cubin_dir_ = std::nullopt
){
    uint32_t grid_0 = n;
    uint32_t grid_1 = 1;
    uint32_t grid_2 = 1;
    (void)device_idx_; (void)cubin_dir_;
    if (grid_0 == 0 || grid_1 == 0 || grid_2 == 0) return;
    CUdeviceptr var_0 = reinterpret_cast<CUdeviceptr>(x.data_ptr());
    int32_t var_1 = n;
    void* kernel_args_[] = {&var_0, &var_1};
    launchKernel(kernels_.add_kernel_0, grid_0, grid_1, grid_2, 4, 0, kernel_args_, stream_);
}

namespace torch::aot_inductor {

void AOTInductorModel::run_impl(
    AtenTensorHandle* inputs,
    AtenTensorHandle* outputs,
    DeviceStreamType stream
) {
    RAIIAtenTensorHandle arg0(inputs[0]);
    RAIIAtenTensorHandle buf0(inputs[1]);
    auto& kernels = kernels_;
    int64_t s0 = 3;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf0, wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg0, 0L)), 1L));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_randint_low_out(buf0, -9223372036854775808L, std::array<int64_t, 1>{s0}.data(), 1));
    int32_t var_2 = 1;
    AtenTensorHandle buf1_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_sort(arg0, &var_2, &buf1_handle));
    outputs[0] = buf1_handle;
    aoti_torch_cpu_bernoulli__float(buf0, 0.5, NULL);
    cpp_fused_relu_0((const float*)(arg0.data_ptr()), (float*)(buf0.data_ptr()), s0);
    while (1) {
        call_add_kernel_0(arg0, s0, this->device_idx_, stream, kernels, this->cubin_dir_);
        if (s0-- == 2) break;
    }
    call_add_kernel_0(arg0, 0L, this->device_idx_, stream, kernels, this->cubin_dir_);
    AtenTensorHandle buf2_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_abs(arg0, &buf2_handle));
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor
