// Stands in for the runtime: prints what instrumented code reports. `main` runs the miniature once; its argument is
// the level. At level 2 a kernel throws.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "aoti_debug.h"

struct AtenTensorOpaque {
  const char* name;
};
static uint32_t level = 0;
static int loops = 0;

namespace torch::aot_inductor {
struct Kernels {
  const char* add_kernel_0 = nullptr;
};
struct AOTInductorModel {
  Kernels kernels_;
  std::optional<std::string> cubin_dir_;
  int32_t device_idx_ = 0;
  void run_impl(AtenTensorOpaque** inputs, AtenTensorOpaque** outputs, void* stream);
};
}  // namespace torch::aot_inductor

static void print(const AotiDebugSite& site, const AotiDebugValue* values, bool after) {
  for (uint32_t i = 0; i < site.n_slots; i++) {
    const AotiDebugSlot& slot = site.slots[i];
    const AotiDebugValue& value = values[slot.value];
    std::printf(" %s=", slot.name);
    if (slot.form == AOTI_DEBUG_TENSOR || slot.form == AOTI_DEBUG_POINTER) {
      std::printf("%s", reinterpret_cast<AtenTensorOpaque*>(value.bits)->name);
    } else if (slot.form == AOTI_DEBUG_OUTPUT_SLOT) {
      std::printf("%s", after ? (*reinterpret_cast<AtenTensorOpaque**>(value.bits))->name : "?");
    } else if (slot.form == AOTI_DEBUG_SCALAR_REF) {
      std::printf("*%d", *reinterpret_cast<int32_t*>(value.bits));
    } else if (slot.form == AOTI_DEBUG_INTS) {
      std::printf("%lld", static_cast<long long>(reinterpret_cast<int64_t*>(value.bits)[slot.element]));
    } else if (value.type == AOTI_DEBUG_F64) {
      double number;
      __builtin_memcpy(&number, &value.bits, 8);
      std::printf("%g:f64", number);
    } else {
      std::printf("%lld:%u", static_cast<long long>(value.bits), value.type);
    }
  }
  std::printf("\n");
}

extern "C" {
uint32_t aoti_debug_level(void) { return level; }

uint32_t aoti_debug_level_of_call(uint32_t) { return level; }
const char* aoti_debug_stopped(void) { return nullptr; }
void aoti_debug_call_begin(AotiDebugCall*, uint32_t kind, const void* model, void* stream) {
  std::printf("call %u model %d stream %d\n", kind, model != nullptr, stream != nullptr);
}
void aoti_debug_call_end(AotiDebugCall*, uint32_t failed) { std::printf("call end, failed %u\n", failed); }
uint32_t aoti_debug_launch_begin(AotiDebugLaunch* launch, const AotiDebugSite* site, const AotiDebugValue* values,
                                 uint32_t n) {
  launch->opaque[0] = reinterpret_cast<uintptr_t>(site);
  std::printf("begin %u %s grid %u, %u values, %d loops:", site->id, site->kernel, site->grid, n, loops);
  print(*site, values, false);
  return AOTI_DEBUG_RUN;
}
void aoti_debug_launch_end(AotiDebugLaunch* launch, const AotiDebugValue* values, int32_t status, const char* message) {
  const auto& site = *reinterpret_cast<const AotiDebugSite*>(launch->opaque[0]);
  std::printf("end %d %s:", status, message == nullptr ? "-" : message);
  print(site, values, status == 0);
}
void aoti_debug_grid(const AotiDebugKernel* kernel, const uint32_t grid[3], uint32_t warps, uint32_t,
                     void* const* args) {
  std::printf("grid %s %u warps %u types %u %u n %d\n", kernel->name, grid[0], warps, kernel->types[0],
              kernel->types[1], *static_cast<int32_t*>(args[1]));
}
void aoti_debug_loop_enter(void) { std::printf("loop %d\n", ++loops); }
void aoti_debug_loop_next(void) { std::printf("next\n"); }
void aoti_debug_loop_leave(void) { loops--; }
void cpp_fused_relu_0(const float*, float*, const int64_t ks0) {
  std::printf("relu %lld\n", static_cast<long long>(ks0));
  if (level == 2) throw std::runtime_error("empty");
}
}

int main(int, char** arguments) {
  setvbuf(stdout, nullptr, _IONBF, 0);
  level = static_cast<uint32_t>(std::atoi(arguments[1]));
  if (level > 0) {
    const AotiDebugPackage& package = aoti_debug_package;
    std::printf("abi %u level %u sites %u kernels %u filter %s\n", package.abi, package.level, package.n_sites,
                package.n_kernels, package.filter);
    std::printf("manifest %.*s\n", 12, package.manifest);
    if (package.manifest[package.manifest_bytes] != '\0' || package.manifest[package.manifest_bytes - 1] != '}')
      return 1;
  }
  AtenTensorOpaque x{"x"}, y{"y"};
  AtenTensorOpaque* inputs[] = {&x, &y};
  AtenTensorOpaque* outputs[] = {nullptr};
  torch::aot_inductor::AOTInductorModel model;
  try {
    model.run_impl(inputs, outputs, nullptr);
  } catch (const std::exception& error) {
    std::printf("raised %s\n", error.what());
  }
  std::printf("output %s\n", outputs[0]->name);
}
