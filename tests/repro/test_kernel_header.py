"""The precompiled header of a package's kernels, in their repros; the headers of torch are small ones here."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder.compiling import toolchain
from aoti_debug.instrument.builder.compiling.toolchain import RUNTIME, Toolchain
from aoti_debug.package.manifest import KernelCompilation
from aoti_debug.repro import kernel_header
from aoti_debug.repro.cpp import PREFIX
from aoti_debug.repro.templates.cpp_build import CppCompiler, library_of
from tests import machine_results

FLAGS = ("-O1", "-fPIC", "-std=c++17")
KERNEL = f'#include <{PREFIX}>\nextern "C" void planted(int* out) {{ *out = VALUE; }}\n'


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    machine_results.use_empty_cache(tmp_path / "cache", monkeypatch)
    found = Toolchain(find_compiler(), find_torch())
    if found.compiler.is_clang:
        pytest.skip("only the header of g++ is linked")
    return found


@pytest.fixture
def include(tmp_path: Path) -> Path:
    return tmp_path / "include"


def define(include: Path, value: str) -> None:
    header = include / PREFIX
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(f"#ifndef VALUE\n#define VALUE {value}\n#endif\n")


def precompile(tools: Toolchain, include: Path) -> None:
    words = [*FLAGS, f"-I{include}", f"-I{RUNTIME}"]
    toolchain.precompile(tools, f"#include <{PREFIX}>\n", words)


def compilation(tools: Toolchain, include: Path, flags: tuple[str, ...] = FLAGS) -> KernelCompilation:
    return KernelCompilation(tools.compiler.path, flags, (str(include),))


def link(folder: Path, compiled: KernelCompilation) -> None:
    header = kernel_header.find(compiled, KERNEL)
    assert header is not None
    header.link_into(folder)


def result(tools: Toolchain, include: Path, folder: Path, flags: tuple[str, ...] = FLAGS, source: str = KERNEL) -> int:
    library = library_of(CppCompiler(tools.compiler.path, flags, (str(include),), ()), source, "planted", folder)
    value = ctypes.c_int()
    ctypes.CDLL(str(library)).planted(ctypes.byref(value))
    return value.value


def test_a_kernel_is_compiled_with_the_header_of_its_package(tools: Toolchain, include: Path, tmp_path: Path) -> None:
    define(include, "7")
    precompile(tools, include)
    define(include, "8")  # shows which one is read
    for name, linked in (("with", True), ("without", False)):
        (tmp_path / name).mkdir()
        if linked:
            link(tmp_path / name, compilation(tools, include))
    assert result(tools, include, tmp_path / "with") == 7
    assert result(tools, include, tmp_path / "without") == 8


def test_other_flags_do_without(tools: Toolchain, include: Path, tmp_path: Path) -> None:
    define(include, "7")
    precompile(tools, include)
    define(include, "8")
    link(tmp_path, compilation(tools, include))
    assert result(tools, include, tmp_path, (*FLAGS, "-O2")) == 8


@pytest.mark.parametrize(("before", "value"), [("#include <cstdint>\n", 7), ("#define OTHER\n", 8)])
def test_further_includes_may_precede_it(
    tools: Toolchain, include: Path, tmp_path: Path, before: str, value: int
) -> None:
    define(include, "7")
    precompile(tools, include)
    define(include, "8")
    link(tmp_path, compilation(tools, include))
    assert result(tools, include, tmp_path, source=before + KERNEL) == value


def test_a_header_that_is_gone_is_not_missed(tools: Toolchain, include: Path, tmp_path: Path) -> None:
    define(include, "7")
    precompile(tools, include)
    link(tmp_path, compilation(tools, include))
    (precompiled,) = (tmp_path / "build").glob("*.gch")
    precompiled.resolve().unlink()
    assert result(tools, include, tmp_path) == 7


@pytest.mark.parametrize("included", [(PREFIX,), (PREFIX, "cstdint"), ("cstdint", PREFIX)])
def test_a_kernel_may_include_more(tools: Toolchain, include: Path, tmp_path: Path, included: tuple[str, ...]) -> None:
    define(include, "7")
    precompile(tools, include)
    source = "".join(f"#include <{name}>\n" for name in included) + "int x;\n"
    header = kernel_header.find(compilation(tools, include), source)
    assert header is not None
    assert header.text == f"#include <{PREFIX}>\n"


def test_there_may_be_no_header(tools: Toolchain, include: Path) -> None:
    define(include, "7")
    precompile(tools, include)
    assert kernel_header.find(compilation(tools, include, (*FLAGS, "-DOTHER")), KERNEL) is None
    assert kernel_header.find(KernelCompilation("no-such-compiler", FLAGS, (str(include),)), KERNEL) is None
    assert kernel_header.find(compilation(tools, include), "#include <cstdint>\nint x;\n") is None
    assert kernel_header.find(compilation(tools, include), "int x;\n") is None
