// The text of statistics.ptx.gz, unpacked and embedded in the one object that includes this.
#pragma once

#include <cstddef>
#include <string_view>

__asm__(
    ".pushsection .rodata\n"
    ".globl aoti_debug_statistics_ptx\n.hidden aoti_debug_statistics_ptx\n"
    "aoti_debug_statistics_ptx:\n"
    ".incbin \"cuda/statistics.ptx\"\n"  // unpacked into an include directory
    ".globl aoti_debug_statistics_ptx_end\n.hidden aoti_debug_statistics_ptx_end\n"
    "aoti_debug_statistics_ptx_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
extern __attribute__((visibility("hidden"))) const char aoti_debug_statistics_ptx[];
extern __attribute__((visibility("hidden"))) const char aoti_debug_statistics_ptx_end[];
}

namespace aoti_debug::cuda {

inline std::string_view statistics_ptx() {
  const char* const begin = aoti_debug_statistics_ptx;
  return std::string_view(begin, static_cast<size_t>(aoti_debug_statistics_ptx_end - begin));
}

}  // namespace aoti_debug::cuda
