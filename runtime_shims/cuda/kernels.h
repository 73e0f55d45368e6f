// The modules of statistics.ptx, each loaded into a context when it is first needed.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "driver.h"

namespace aoti_debug::cuda {

class Kernels {
 public:
  struct Kernel {
    CUfunction function = nullptr;
    bool waits = false;      // for the work before it, if it begins earlier
    std::string_view error;  // why there is none; stays
    bool tried = false;
  };

  explicit Kernels(std::string_view ptx) : ptx_(ptx) {}

  // For the calling thread's current context. Both names are literals.
  const Kernel& get(std::string_view module, std::string_view name) {
    Kernel& kernel = kernels_[{current_context(), module, name}];
    if (!kernel.tried) kernel = load(module, name);
    return kernel;
  }

  // What could not be loaded is tried again when it is needed next.
  void forget_failures() {
    for (auto& [key, kernel] : kernels_) kernel.tried = kernel.function != nullptr;
  }

 private:
  struct Module {
    CUmodule module = nullptr;
    bool waits = false;
  };

  // The text between the module's heading and the next one.
  std::string text(std::string_view module) const {
    static constexpr std::string_view heading = "// module: ";
    const std::string line = std::string(heading) + std::string(module) + "\n";
    const size_t begin = ptx_.find(line);
    if (begin == std::string_view::npos) return "";
    const size_t end = ptx_.find(heading, begin + line.size());
    return std::string(ptx_.substr(begin, end == std::string_view::npos ? end : end - begin));
  }

  // Whether the device and its driver have what is behind kNewer in the text.
  static bool is_newer() {
    CUdevice device = 0;
    int major = 0, driver = 0;
    return cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS &&
           major >= 9 && cuDriverGetVersion(&driver) == CUDA_SUCCESS && driver >= 11080;
  }

  // Makes instructions of what is behind kNewer. False: the text has none.
  static bool renew(std::string* text) {
    static constexpr std::string_view kNewer = "//sm_90 ";
    if (text->find(kNewer) == std::string::npos) return false;
    const auto replace = [text](std::string_view old, std::string_view by) {
      for (size_t at = text->find(old); at != std::string::npos; at = text->find(old, at)) {
        text->replace(at, old.size(), by);
      }
    };
    replace(kNewer, "");
    replace(".version 6.0\n.target sm_70\n", ".version 7.8\n.target sm_90\n");
    return true;
  }

  Kernel load(std::string_view module, std::string_view name) {
    const RelaxedCapture relaxed;
    Module& loaded = modules_[{current_context(), module}];
    Kernel kernel;
    kernel.tried = true;
    CUresult result = CUDA_SUCCESS;
    if (loaded.module == nullptr) {
      std::string code = text(module);
      loaded.waits = is_newer() && renew(&code);
      result = cuModuleLoadDataEx(&loaded.module, code.c_str(), 0, nullptr, nullptr);
    }
    if (result == CUDA_SUCCESS) {
      result = cuModuleGetFunction(&kernel.function, loaded.module, std::string(name).c_str());
      kernel.waits = loaded.waits;
    }
    if (result != CUDA_SUCCESS) {
      kernel.function = nullptr;
      kernel.error = *errors_.insert("its kernel cannot be loaded: " + describe(result)).first;
    }
    return kernel;
  }

  std::string_view ptx_;
  std::map<std::pair<CUcontext, std::string_view>, Module> modules_;
  std::map<std::tuple<CUcontext, std::string_view, std::string_view>, Kernel> kernels_;
  std::set<std::string> errors_;
};

}  // namespace aoti_debug::cuda
