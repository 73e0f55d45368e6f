"""Packages of another torch: made of a library that needs what this torch does not have."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine import compiler
from aoti_debug.base.machine.compiler import Compiler
from aoti_debug.instrument.frontend import torch_mismatch
from aoti_debug.instrument.frontend.sources import Flags, Sources

CALLS = """
extern "C" int aoti_torch_get_dim(void*, long*);
extern "C" int aoti_torch_%s(void*);
extern "C" __attribute__((weak)) int aoti_torch_weak(void*);
extern "C" int model(void* x, long* d) {
  return aoti_torch_get_dim(x, d) + aoti_torch_%s(x) + (aoti_torch_weak ? 1 : 0);
}
"""
WRAPPER = "#include <torch/csrc/inductor/aoti_runtime/model.h>\n"
FLAGS = Flags("g++", (), (), ("O1", "std=c++20"), (), (), (), ())


def library(path: Path, function: str) -> Path:
    path.with_suffix(".cpp").write_text(CALLS % (function, function))
    subprocess.run(["g++", "-shared", "-fPIC", path.with_suffix(".cpp"), "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def torch() -> compiler.Torch:
    return compiler.find_torch()


def test_a_library_that_this_torch_serves(tmp_path: Path, torch: compiler.Torch) -> None:
    torch_mismatch.check(Path("c.pt2"), WRAPPER, library(tmp_path / "c.so", "cpu_addmm_out"), torch)


def test_functions_missing_in_this_torch(tmp_path: Path, torch: compiler.Torch) -> None:
    with pytest.raises(ToolchainError) as caught:
        torch_mismatch.check(Path("c.pt2"), WRAPPER, library(tmp_path / "c.so", "cpu_of_the_future"), torch)
    assert str(caught.value) == (
        f"c.pt2 was compiled by another torch than the installed {torch.version}, which lacks functions of the C shim "
        "that it needs: aoti_torch_cpu_of_the_future"
    )
    assert caught.value.hint == torch_mismatch.HINT


def test_what_the_wrapper_declares_is_the_user_s(tmp_path: Path, torch: compiler.Torch) -> None:
    declared = 'extern "C" AOTITorchError aoti_torch_cpu_mine(AtenTensorHandle x);\n'
    missing = torch_mismatch.missing_functions(WRAPPER + declared, library(tmp_path / "c.so", "cpu_mine"), torch)
    assert missing == []


def test_headers_missing_in_this_torch(torch: compiler.Torch) -> None:
    with pytest.raises(ToolchainError, match=r"which lacks headers that it needs: torch/csrc/of/the/future\.h"):
        torch_mismatch.check(Path("c.pt2"), "#include <torch/csrc/of/the/future.h>\n", None, torch)


def test_the_standard_is_that_of_the_installed_torch(tmp_path: Path, torch: compiler.Torch) -> None:
    (tmp_path / "_inductor").mkdir()
    (tmp_path / "_inductor" / "cpp_builder.py").write_text('def f(std_num: str = "c++20") -> list[str]:\n')
    here = replace(torch, version="9.9", directory=tmp_path)
    assert torch_mismatch.use_installed_standard(FLAGS, here) == (FLAGS, "")
    older = replace(FLAGS, cflags=("O1", "std=c++17"))
    flags, note = torch_mismatch.use_installed_standard(older, here)
    assert flags == FLAGS
    assert note == "another torch than the installed 9.9 compiled it: as C++17, this one compiles C++20"


def test_the_standard_of_the_installed_torch_is_known(torch: compiler.Torch) -> None:
    _, note = torch_mismatch.use_installed_standard(replace(FLAGS, cflags=("std=c++11",)), torch)
    assert f"the installed {torch.version} compiled it: as C++11" in note


def sources_of(flags: Flags) -> Sources:
    return Sources(
        directory=Path(),
        stem="c.wrapper",
        device="cpu",
        wrapper="",
        kernels="",
        extern_nodes="",
        provenance="",
        compile_flags=flags,
        link_flags=FLAGS,
        objects=(),
        mapped_weights=None,
        shipped=(),
        wrapper_opt="O1",
    )


@pytest.mark.parametrize(("package_compiler", "mentioned"), [("g++", False), ("/usr/bin/clang++-17", True)])
def test_a_compile_error_is_explained(torch: compiler.Torch, package_compiler: str, mentioned: bool) -> None:
    sources = sources_of(replace(FLAGS, compiler=package_compiler))
    error = torch_mismatch.explain_compile_error(
        ToolchainError("no"), sources, Compiler("/usr/bin/g++", "g++ 13"), torch
    )
    assert f"another one than the installed {torch.version}" in str(error)
    assert ("it was compiled with clang++-17, and CXX is /usr/bin/g++ here" in str(error)) is mentioned
    assert error.hint == torch_mismatch.HINT


@pytest.mark.parametrize(
    "said", ["driver.h:4:10: fatal error: cuda.h: No such file or directory", "fatal error: 'cuda.h' file not found"]
)
def test_a_package_for_a_gpu_where_there_is_no_cuda(torch: compiler.Torch, said: str) -> None:
    found = ToolchainError(f"others0.cpp does not compile\n{said}")
    error = torch_mismatch.explain_compile_error(found, sources_of(FLAGS), Compiler("g++", "g++ 13"), torch)
    assert (str(error), error.hint) == (
        "the package is for a GPU, and there is no cuda.h here",
        torch_mismatch.CUDA_HINT,
    )
