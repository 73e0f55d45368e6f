from __future__ import annotations

import ctypes
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine import compiler
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.builder.compiling import compile_library
from aoti_debug.instrument.builder.compiling.compile_library import LibraryCompilation
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.instrument.frontend.sources import Flags, Sources
from tests.once import once
from tests.paths import SMALL_LIBRARY

# Both halves tell how they were optimized.
WRAPPER = """#include <cstdint>
// a comment between
#include <string>
extern "C" int64_t kernel();
extern "C" int64_t model() {
#ifdef __OPTIMIZE__
  return std::string("ab").size() * 1000 + kernel() + A_VALUE;
#else
  return -1;
#endif
}
"""
KERNELS = """
#include <cstdint>
extern "C" int64_t kernel() { return 7; }
"""
TORCH = Torch("2.13.0", Path("/nowhere"), "fingerprint")


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "library-cache", lambda folder: folder)


@pytest.fixture(autouse=True)
def own_cache(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of these tests, in all processes that they are spread over: they have the same headers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    return cache_home / "aoti_debug"


@pytest.fixture
def tools() -> Toolchain:
    return Toolchain(compiler.find_compiler(), TORCH, jobs=2)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    flags = Flags(
        compiler="g++",
        definitions=("A_VALUE=50", "WITH_BLANK"),
        include_dirs=(str(SMALL_LIBRARY),),  # the same for all: they share headers
        cflags=("O3", "fPIC", "std=c++17"),
        ldflags=(),
        libraries_dirs=(),
        libraries=(),
        passthrough=("-fno-strict-aliasing",),
    )
    work = tmp_path / "work"
    work.mkdir()
    return Sources(
        directory=tmp_path,
        stem="c1.wrapper",
        device="cpu",
        wrapper=WRAPPER,
        kernels=KERNELS,
        extern_nodes="",
        provenance="",
        compile_flags=flags,
        link_flags=replace(flags, cflags=(*flags.cflags, "shared"), libraries=("m",), libraries_dirs=("/usr/lib",)),
        objects=(),
        mapped_weights=None,
        shipped=(),
        wrapper_opt="O1",
    )


def call(library: Path) -> int:
    function = ctypes.CDLL(str(library)).model
    function.restype = ctypes.c_int64
    return int(function())


def test_links_the_uninstrumented_library(tools: Toolchain, sources: Sources, tmp_path: Path, own_cache: Path) -> None:
    work, library = tmp_path / "work", tmp_path / "m.so"
    compile_library.build_plain_library(tools, sources, work, library)
    assert call(library) == 2057
    headers = sorted((own_cache / "headers").glob(f"*/leading.h{tools.compiler.header_suffix}"))
    before = [path.stat().st_mtime_ns for path in headers]
    assert all("#include <cstdint>\n" in path.with_name("leading.h").read_text() for path in headers)
    assert len(headers) >= 2  # of the wrapper and of the kernels
    compile_library.build_plain_library(tools, sources, work, library)
    assert [path.stat().st_mtime_ns for path in headers] == before


def test_kernels_that_are_compiled_already(tools: Toolchain, sources: Sources, tmp_path: Path) -> None:
    work = tmp_path / "work"
    with LibraryCompilation(tools, sources, work) as first:
        kernels = first.add_kernels().result()
    broken = replace(sources, kernels="no code")
    compile_library.build_plain_library(tools, broken, work, tmp_path / "m.so", kernels)
    assert call(tmp_path / "m.so") == 2057


INTERFACE = """#include <cstdint>

namespace {
int64_t doubled(int64_t x) { return 2 * x; }
} // namespace

extern "C" {
using AOTIRuntimeError = int64_t;
int64_t model_value();
AOTIRuntimeError AOTInductorModelContainerRun() {
  return doubled(model_value());
}
} // extern "C"
"""


def test_the_functions_of_the_library_are_compiled_once(
    tools: Toolchain, sources: Sources, tmp_path: Path, own_cache: Path
) -> None:
    for value in (7, 8):
        model = f'extern "C" int64_t model_value() {{ return {value}; }}\n'
        library = tmp_path / f"{value}.so"
        compile_library.build_plain_library(
            tools, replace(sources, wrapper=INTERFACE + model), tmp_path / "work", library
        )
        assert ctypes.CDLL(str(library)).AOTInductorModelContainerRun() == 2 * value
    assert len(list((own_cache / "objects").glob("*/interface.o"))) == 1


def test_wrapper_and_kernels_have_flags_of_their_own(tools: Toolchain, sources: Sources, tmp_path: Path) -> None:
    with LibraryCompilation(tools, replace(sources, wrapper_opt="O0"), tmp_path / "work") as objects:
        objects.add_kernels()
        objects.add_wrapper(WRAPPER)
        objects.link(tmp_path / "m.so")
    assert call(tmp_path / "m.so") == -1


def test_where_the_faster_linker_fails_the_usual_one_links(tools: Toolchain, sources: Sources, tmp_path: Path) -> None:
    broken = replace(tools, compiler=replace(tools.compiler, linker=("-fuse-ld=no-such-linker",)))
    compile_library.build_plain_library(broken, sources, tmp_path / "work", tmp_path / "m.so")
    assert call(tmp_path / "m.so") == 2057


def test_command_lines_are_inductors(sources: Sources) -> None:
    assert compile_library.kernel_flags(sources) == (
        "-DA_VALUE=50",
        "-DWITH_BLANK",
        "-O3",
        "-fPIC",
        "-std=c++17",
        "-fno-strict-aliasing",
    )
    assert compile_library.link_flags(sources) == ("-lm", "-L/usr/lib")


def stack_flags(library: Path) -> int:
    """p_flags of PT_GNU_STACK: 1 execute, 2 write, 4 read."""
    data = library.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<II", data, table + size * index) for index in range(count)]
    return next(int(flags) for kind, flags in headers if kind == 0x6474E551)


def test_weights_do_not_make_the_stack_executable(tools: Toolchain, sources: Sources, tmp_path: Path) -> None:
    assembly, weights, library = (tmp_path / name for name in ("weights.S", "weights.o", "m.so"))
    assembly.write_text(".section .data\n.globl weights\nweights: .byte 7\n")  # no .note.GNU-stack, as Inductor's
    subprocess.run([tools.compiler.path, "-c", str(assembly), "-o", str(weights)], check=True)
    strict = replace(sources.link_flags, ldflags=("Wl,--fatal-warnings",))
    compile_library.build_plain_library(
        tools, replace(sources, objects=(weights,), link_flags=strict), tmp_path / "work", library
    )
    assert stack_flags(library) == 6
    assert call(library) == 2057


def test_a_wrapper_that_does_not_compile(tools: Toolchain, sources: Sources, tmp_path: Path, own_cache: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        compile_library.build_plain_library(
            tools, replace(sources, wrapper="int x = nothing;\n"), tmp_path / "work", tmp_path / "m.so"
        )
    lines = str(caught.value).splitlines()
    log = Path(lines[-1].removeprefix("log: "))
    assert lines[0] == "wrapper.cpp does not compile (exit code 1)"
    assert lines[1].endswith(
        ("‘nothing’ was not declared in this scope", "'nothing' was not declared in this scope", "'nothing'")
    )
    assert log.parent == own_cache / "logs"
    assert log.read_text().startswith(f"{tools.compiler.path} -c ")
    assert not (tmp_path / "m.so").exists()


def test_a_library_that_cannot_be_linked(tools: Toolchain, sources: Sources, tmp_path: Path) -> None:
    broken = replace(sources, link_flags=replace(sources.link_flags, libraries=("no_such_library",)))
    with pytest.raises(ToolchainError, match=r"m\.so cannot be linked"):
        compile_library.build_plain_library(tools, broken, tmp_path / "work", tmp_path / "m.so")
