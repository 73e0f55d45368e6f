"""A folder with the files of an unpacked `package_cpp_only` archive."""

from __future__ import annotations

import json
from pathlib import Path

WRAPPER = """#include <torch/csrc/inductor/aoti_include/cpu.h>
namespace torch::aot_inductor {
namespace {
} // namespace
} // namespace torch::aot_inductor
namespace torch::aot_inductor {
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor
"""
KERNELS = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_relu_0(float* in_out_ptr0)
{
}
"""
COMMANDS = """
// Compile cmd
// g++ /tmp/x/c1.wrapper.cpp -c -o /tmp/x/c1.wrapper.o
// Link cmd
// g++ /tmp/x/c1.wrapper.o -shared
"""
FLAGS = {
    "compiler": "g++",
    "definitions": ["STANDALONE_TORCH_HEADER", " C10_USING_CUSTOM_GENERATED_MACROS"],
    "include_dirs": ["/opt/torch/include", "/opt/a dir"],
    "cflags": ["O3", "DNDEBUG", "std=c++20", "fopenmp"],
    "ldflags": [],
    "libraries_dirs": ["/opt/torch/lib"],
    "libraries": ["torch", "torch_cpu"],
    "passthrough_args": ["", "-mavx512f -mfma"],
}


def unpacked(folder: Path, text: str = WRAPPER + KERNELS + COMMANDS, device: str = "cpu") -> Path:
    """A folder as an unpacked `package_cpp_only` archive is."""
    files = {
        "c1.wrapper.cpp": text,
        "c1.wrapper.json": '{"nodes": []}',
        "c1.wrapper_metadata.json": json.dumps({"AOTI_DEVICE_KEY": device}),
        "c1.wrapper_compile_flags.json": json.dumps(FLAGS),
        "c1.wrapper_linker_flags.json": json.dumps({**FLAGS, "cflags": [*FLAGS["cflags"], "shared"]}),
        "c2.weights.o": "",
        "kernel_information.json": "{}",
        "triton_poi_fused_0.cubin": "",
        "CMakeLists.txt": "",
        "script.ld": "",
    }
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder
