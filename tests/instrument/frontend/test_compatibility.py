"""Packages for other machines; what Inductor calls instruction sets, and what Linux calls them."""

from __future__ import annotations

import os
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.machine import compiler
from aoti_debug.base.machine.compiler import Compiler, Processor
from aoti_debug.instrument.frontend import compatibility
from aoti_debug.instrument.frontend.sources import Flags, Sources

HASWELL = frozenset({"fpu", "sse2", "avx2", "fma"})
SKYLAKE = HASWELL | {"avx512f", "avx512dq", "avx512vl", "avx512bw"}
SAPPHIRE = SKYLAKE | {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}
HERE = {"AOTI_PLATFORM": "linux", "AOTI_MACHINE": os.uname().machine, "AOTI_CPU_ISA": ""}
PACKAGE = Path("m.pt2")


@pytest.mark.parametrize(
    ("instruction_sets", "flags", "missing"),
    [
        ("AVX2", HASWELL, ()),
        ("AVX2", frozenset({"sse2"}), ("AVX2",)),
        ("AVX512", HASWELL, ("AVX512",)),
        ("AVX512", SKYLAKE, ()),
        ("AVX512 AVX512_VNNI", SKYLAKE, ("AVX512_VNNI",)),
        ("AVX512 AVX512_VNNI AMX_TILE", SAPPHIRE, ()),
        ("AVX512 AVX512_VNNI AMX_TILE", SKYLAKE, ("AVX512_VNNI", "AMX_TILE")),
        ("ASIMD", frozenset({"asimd", "fp"}), ()),
        ("ASIMD", SAPPHIRE, ("ASIMD",)),
        ("INVALID_VEC_ISA", HASWELL, ()),
        ("AVX512", frozenset(), ()),
    ],
)
def test_instruction_sets(instruction_sets: str, flags: frozenset[str], missing: tuple[str, ...]) -> None:
    assert compatibility.missing_instruction_sets(instruction_sets, flags) == missing


def test_this_machine_has_the_instruction_sets_that_inductor_picks() -> None:
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    compatibility.check_machine(PACKAGE, HERE | {"AOTI_CPU_ISA": str(pick_vec_isa()).upper()})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"AOTI_PLATFORM": "windows"}, "m.pt2 was compiled for windows; this machine runs Linux"),
        ({"AOTI_MACHINE": "s390x"}, f"m.pt2 was compiled for s390x; this machine is {os.uname().machine}"),
        ({"AOTI_CPU_ISA": "AVX512 AMX_TILE"}, "m.pt2 was compiled for a processor with AMX_TILE, which this one lacks"),
    ],
)
def test_another_machine(monkeypatch: pytest.MonkeyPatch, metadata: dict[str, str], message: str) -> None:
    monkeypatch.setattr(compatibility, "this_processor", lambda: Processor("Skylake", SKYLAKE))
    with pytest.raises(ArtifactError) as caught:
        compatibility.check_machine(PACKAGE, HERE | metadata)
    assert str(caught.value) == message
    assert caught.value.hint.startswith("run it on a machine")


@pytest.mark.parametrize(
    ("compiled", "here", "runs"),
    [("90", (9, 0), True), ("80", (8, 6), True), ("90", (8, 0), False), ("80", (9, 0), False), ("", (9, 0), True)],
)
def test_compute_capability(compiled: str, here: tuple[int, int], runs: bool) -> None:
    metadata = {"AOTI_COMPUTE_CAPABILITY": compiled}
    if runs:
        compatibility.check_gpu(PACKAGE, metadata, here)
        return
    with pytest.raises(ArtifactError, match=rf"m\.pt2 was compiled for a GPU of compute capability {compiled[0]}\.0"):
        compatibility.check_gpu(PACKAGE, metadata, here)


def test_the_library_of_another_machine(tmp_path: Path) -> None:
    here = next(number for number, name in compatibility._MACHINES.items() if name == os.uname().machine)
    library = tmp_path / "c.so"
    for number in (here, 183 if here != 183 else 62):
        header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, number, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0)
        library.write_bytes(header)
        if number == here:
            compatibility.check_library(Path("c.pt2"), library)
    with pytest.raises(ArtifactError, match=rf"c\.pt2 holds a library for \w+; this machine is {os.uname().machine}"):
        compatibility.check_library(Path("c.pt2"), library)
    library.write_bytes(b"no library")
    with pytest.raises(ArtifactError, match=r"c\.so is no library"):
        compatibility.check_library(Path("c.pt2"), library)


def test_metadata_is_texts() -> None:
    assert compatibility.parse_metadata(PACKAGE, "x.json", b'{"a": "b", "n": 3}') == {"a": "b", "n": "3"}


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 200_000, b"\xff"])
def test_damaged_metadata(text: str | bytes) -> None:
    with pytest.raises(ArtifactError, match=r"x\.json of m\.pt2 is damaged"):
        compatibility.parse_metadata(PACKAGE, "x.json", text)


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
    compatibility.check_torch(Path("c.pt2"), WRAPPER, library(tmp_path / "c.so", "cpu_addmm_out"), torch)


def test_functions_missing_in_this_torch(tmp_path: Path, torch: compiler.Torch) -> None:
    with pytest.raises(ToolchainError) as caught:
        compatibility.check_torch(Path("c.pt2"), WRAPPER, library(tmp_path / "c.so", "cpu_of_the_future"), torch)
    assert str(caught.value) == (
        f"c.pt2 was compiled by another torch than the installed {torch.version}, which lacks functions of the C shim "
        "that it needs: aoti_torch_cpu_of_the_future"
    )
    assert caught.value.hint == compatibility.TORCH_HINT


def test_what_the_wrapper_declares_is_the_user_s(tmp_path: Path, torch: compiler.Torch) -> None:
    declared = 'extern "C" AOTITorchError aoti_torch_cpu_mine(AtenTensorHandle x);\n'
    missing = compatibility.missing_functions(WRAPPER + declared, library(tmp_path / "c.so", "cpu_mine"), torch)
    assert missing == []


def test_headers_missing_in_this_torch(torch: compiler.Torch) -> None:
    with pytest.raises(ToolchainError, match=r"which lacks headers that it needs: torch/csrc/of/the/future\.h"):
        compatibility.check_torch(Path("c.pt2"), "#include <torch/csrc/of/the/future.h>\n", None, torch)


def test_the_standard_is_that_of_the_installed_torch(tmp_path: Path, torch: compiler.Torch) -> None:
    (tmp_path / "_inductor").mkdir()
    (tmp_path / "_inductor" / "cpp_builder.py").write_text('def f(std_num: str = "c++20") -> list[str]:\n')
    here = replace(torch, version="9.9", directory=tmp_path)
    assert compatibility.use_installed_standard(FLAGS, here) == (FLAGS, "")
    older = replace(FLAGS, cflags=("O1", "std=c++17"))
    flags, note = compatibility.use_installed_standard(older, here)
    assert flags == FLAGS
    assert note == "another torch than the installed 9.9 compiled it: as C++17, this one compiles C++20"


def test_the_standard_of_the_installed_torch_is_known(torch: compiler.Torch) -> None:
    _, note = compatibility.use_installed_standard(replace(FLAGS, cflags=("std=c++11",)), torch)
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
    error = compatibility.explain_compile_error(
        ToolchainError("no"), sources, Compiler("/usr/bin/g++", "g++ 13"), torch
    )
    assert f"another one than the installed {torch.version}" in str(error)
    assert ("it was compiled with clang++-17, and CXX is /usr/bin/g++ here" in str(error)) is mentioned
    assert error.hint == compatibility.TORCH_HINT


@pytest.mark.parametrize(
    "said", ["driver.h:4:10: fatal error: cuda.h: No such file or directory", "fatal error: 'cuda.h' file not found"]
)
def test_a_package_for_a_gpu_where_there_is_no_cuda(torch: compiler.Torch, said: str) -> None:
    found = ToolchainError(f"others0.cpp does not compile\n{said}")
    error = compatibility.explain_compile_error(found, sources_of(FLAGS), Compiler("g++", "g++ 13"), torch)
    assert (str(error), error.hint) == (
        "the package is for a GPU, and there is no cuda.h here",
        compatibility.CUDA_HINT,
    )
