// The kernels by module and name, and how to run one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator {

struct Kernel {
  void (*body)(const void* argument);  // nullptr: there is no such kernel
  size_t argument_bytes;
};

Kernel find_kernel(const std::string& module, const std::string& name);

void launch(const Kernel& kernel, const void* argument, uint32_t blocks, uint32_t threads);

}  // namespace emulator
