from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoti_debug import sources
from aoti_debug.errors import ToolchainError
from aoti_debug.sources import Flags

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


def test_reads_an_unpacked_archive(tmp_path: Path) -> None:
    found = sources.read(unpacked(tmp_path), wrapper_opt="O1")
    assert (found.stem, found.device, found.wrapper_opt) == ("c1.wrapper", "cpu", "O1")
    assert (found.wrapper, found.kernels) == (WRAPPER, f"{KERNELS}\n")
    assert (found.extern_nodes, found.provenance) == ('{"nodes": []}', "{}")
    assert [path.name for path in found.objects] == ["c2.weights.o"]
    assert [path.name for path in found.shipped] == [
        "c1.wrapper.json",
        "c1.wrapper_metadata.json",
        "triton_poi_fused_0.cubin",
    ]
    assert found.mapped_weights is None
    assert found.compile_flags == Flags(
        compiler="g++",
        definitions=("STANDALONE_TORCH_HEADER", "C10_USING_CUSTOM_GENERATED_MACROS"),
        include_dirs=("/opt/torch/include", "/opt/a dir"),
        cflags=("O3", "DNDEBUG", "std=c++20", "fopenmp"),
        ldflags=(),
        libraries_dirs=("/opt/torch/lib",),
        libraries=("torch", "torch_cpu"),
        passthrough=("-mavx512f", "-mfma"),
    )
    assert found.link_flags.cflags[-1] == "shared"


def test_weights_above_two_gigabytes_lie_apart(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    (folder / "c1.wrapper_serialized_weights.bin").write_bytes(b"w")
    found = sources.read(folder, wrapper_opt="O1")
    assert found.mapped_weights == folder / "c1.wrapper_serialized_weights.bin"
    assert found.mapped_weights not in found.shipped


@pytest.mark.parametrize(
    ("after_wrapper", "kernels", "is_code"),
    [
        (KERNELS + COMMANDS, f"{KERNELS}\n", True),
        (COMMANDS, "\n", False),
        (
            f"{COMMANDS}// Triton kernels are embedded as comments\n{COMMANDS}",
            "\n// Triton kernels are embedded as comments\n\n",
            False,
        ),
    ],
)
def test_kernels_begin_where_the_model_ends(after_wrapper: str, kernels: str, is_code: bool) -> None:
    assert sources.split_kernels(WRAPPER + after_wrapper) == (WRAPPER, kernels)
    assert sources.has_code(kernels) is is_code


def test_an_unknown_wrapper_is_refused() -> None:
    with pytest.raises(ToolchainError, match="another form of C\\+\\+"):
        sources.split_kernels("int main() {}\n")


def test_missing_files_are_refused(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    (folder / "c1.wrapper_linker_flags.json").unlink()
    with pytest.raises(ToolchainError, match=r"has 0 files \*_linker_flags\.json instead of one"):
        sources.read(folder, wrapper_opt="O1")
