// The modules of statistics.ptx, each loaded into a context when it is first needed.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "driver.h"

namespace aoti_debug::cuda {

class Kernels {
 public:
  struct Kernel {
    CUfunction function = nullptr;
    std::string error;  // why there is none
  };

  explicit Kernels(std::string_view ptx) : ptx_(ptx) {}

  // For the calling thread's current context. Both names are literals.
  const Kernel& get(std::string_view module, std::string_view name) {
    const auto [entry, is_new] = kernels_.try_emplace({current_context(), module, name});
    if (is_new) entry->second = load(module, name);
    return entry->second;
  }

 private:
  // The text between the module's heading and the next one.
  std::string text(std::string_view module) const {
    static constexpr std::string_view heading = "// module: ";
    const std::string line = std::string(heading) + std::string(module) + "\n";
    const size_t begin = ptx_.find(line);
    if (begin == std::string_view::npos) return "";
    const size_t end = ptx_.find(heading, begin + line.size());
    return std::string(ptx_.substr(begin, end == std::string_view::npos ? end : end - begin));
  }

  Kernel load(std::string_view module, std::string_view name) {
    const RelaxedCapture relaxed;
    CUmodule& loaded = modules_[{current_context(), module}];
    Kernel kernel;
    CUresult result = CUDA_SUCCESS;
    if (loaded == nullptr) result = cuModuleLoadDataEx(&loaded, text(module).c_str(), 0, nullptr, nullptr);
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&kernel.function, loaded, std::string(name).c_str());
    if (result != CUDA_SUCCESS) kernel.error = "its kernel cannot be loaded: " + describe(result);
    return kernel;
  }

  std::string_view ptx_;
  std::map<std::pair<CUcontext, std::string_view>, CUmodule> modules_;
  std::map<std::tuple<CUcontext, std::string_view, std::string_view>, Kernel> kernels_;
};

}  // namespace aoti_debug::cuda
