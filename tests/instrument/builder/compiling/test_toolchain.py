from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import TargetError, ToolchainError
from aoti_debug.base.machine.compiler import Compiler, Torch, find_compiler
from aoti_debug.base.machine.processes.child_process import Children
from aoti_debug.instrument.builder.compiling import toolchain
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain, compile_text
from aoti_debug.instrument.frontend.sources import Flags
from tests.instrument.wrapper import texts

TOOLS = Toolchain(Compiler("/no/such/compiler", "g++ 13"), Torch("2.13.0", Path("/nowhere"), "fingerprint"))


def test_a_compiler_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        TOOLS.compile(tmp_path / "a.cpp", tmp_path / "a.o", [])
    assert str(caught.value) == "a.cpp does not compile: /no/such/compiler: No such file or directory"
    assert caught.value.hint == "set CXX to a working compiler"


def test_a_key_depends_on_the_compiler_on_torch_and_on_what_is_compiled() -> None:
    others = (
        replace(TOOLS, compiler=Compiler("/no/such/compiler", "g++ 14")),
        replace(TOOLS, torch=replace(TOOLS.torch, fingerprint="another")),
    )
    assert len({TOOLS.key("a"), TOOLS.key("b"), *(tools.key("a") for tools in others)}) == 4
    assert TOOLS.key("a") == replace(TOOLS, jobs=7).key("a")


def test_words_of_flags() -> None:
    flags = Flags(
        "g++", ("A=1",), ("/include",), ("O3", "x c++"), ("Wl,-z,now",), ("/lib",), ("m",), ("-march=native",)
    )
    assert toolchain.compile_words(flags) == ["-DA=1", "-O3", "-x", "c++", "-I/include", "-march=native"]
    assert toolchain.link_words(flags) == ("-Wl,-z,now", "-lm", "-L/lib")


def test_what_a_compiler_says_of_a_source_that_compiles(tmp_path: Path) -> None:
    tools, source, warnings = replace(TOOLS, compiler=find_compiler()), tmp_path / "a.cpp", tmp_path / "a.warnings"
    for text, said in (("int x;\n", ""), ("#warning old\n", "old")):
        source.write_text(text)
        assert tools.compile(source, tmp_path / "a.o", [], warnings).exists()
        assert said in warnings.read_text()
        assert bool(warnings.read_text()) == bool(said)


def test_a_compiler_that_lacks_memory_is_no_error_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    failing = ["sh", "-c", "echo 'cc1plus: out of memory allocating 9 bytes' >&2; exit 1"]
    with pytest.raises(TargetError) as caught:
        TOOLS.run(failing, "a.cpp does not compile")
    assert "cc1plus: out of memory allocating 9 bytes" in str(caught.value)
    assert caught.value.hint.startswith("end other programs, or ")


def test_a_compiler_that_is_killed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tools = replace(TOOLS, children=Children())

    def kill() -> None:
        while not list(tmp_path.glob("*/cc.s")):
            time.sleep(0.01)
        tools.children.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ToolchainError, match="it was interrupted"):
        tools.run(["sh", "-c", 'touch "$TMPDIR/cc.s"; sleep 60'], "a.cpp does not compile")
    killer.join()
    assert list(tmp_path.iterdir()) == []


TEXT = "int value() { return 1; }\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the compiler has compiled, with a cache and a header of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "RUNTIME", tmp_path)
    (tmp_path / "aoti_debug.h").write_text("")
    sources: list[str] = []

    def compile_(self: Toolchain, source: Path, output: Path, words: list[str]) -> Path:
        sources.append(source.read_text())
        output.write_text(f"{len(sources)}")
        return output

    monkeypatch.setattr(Toolchain, "compile", compile_)
    return sources


@pytest.fixture
def object_of(tools: Toolchain, tmp_path: Path, compiled: list[str]) -> Callable[..., str]:
    """Compiles a text in a folder of its own and returns what is in the object."""
    folders = (tmp_path / f"work{number}" for number in itertools.count())

    def run(text: str, name: str = "kernel", *words: str) -> str:
        folder = next(folders)
        folder.mkdir()
        made = compile_text(tools, folder, text, name, words)
        assert made == folder / f"{name}.o"
        return made.read_text()

    return run


def test_a_text_is_compiled_once(object_of: Callable[..., str], compiled: list[str]) -> None:
    assert [object_of(TEXT), object_of(TEXT)] == ["1", "1"]
    assert compiled == [TEXT]


def test_another_text_name_or_option_is_compiled(object_of: Callable[..., str]) -> None:
    assert [object_of(TEXT), object_of(f"{TEXT}\n"), object_of(TEXT, "wrapper"), object_of(TEXT, "kernel", "-O1")] == [
        *"1234"
    ]


def test_the_order_of_options_counts_among_those_of_a_kind(object_of: Callable[..., str]) -> None:
    orders = (
        ("1", "-O1 -DA=1 -DA=2 -mavx -Ia -ffast-math -fno-fast-math"),
        ("1", "-Ia -DA=1 -O1 -ffast-math -DA=2 -fno-fast-math -mavx"),
        ("2", "-O1 -DA=2 -DA=1 -mavx -Ia -ffast-math -fno-fast-math"),
        ("3", "-O1 -DA=1 -DA=2 -mavx -Ia -fno-fast-math -ffast-math"),
    )
    assert [object_of(TEXT, "kernel", *words.split()) for _, words in orders] == [number for number, _ in orders]


def test_a_changed_header_is_compiled(object_of: Callable[..., str], tmp_path: Path) -> None:
    text = f'#include "aoti_debug.h"\n{TEXT}'
    found = [object_of(text), object_of(text)]
    (tmp_path / "aoti_debug.h").write_text("// another version\n")
    assert [*found, object_of(text)] == ["1", "1", "2"]


def test_another_place_of_the_same_header_is_no_reason_to_compile(
    object_of: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [object_of(TEXT, "kernel", "-Ia", f"-I{tmp_path}")]
    other = tmp_path / "other"
    other.mkdir()
    (other / "aoti_debug.h").write_text("")
    monkeypatch.setattr(toolchain, "RUNTIME", other)
    found += [object_of(TEXT, "kernel", "-Ia", f"-I{other}"), object_of(TEXT, "kernel", f"-I{tmp_path}")]
    assert found == ["1", "1", "2"]


def test_a_text_that_includes_other_files_is_always_compiled(object_of: Callable[..., str]) -> None:
    text = f'#include "aoti_debug.h"\n # include "mine.h"\n{TEXT}'
    assert [object_of(text), object_of(text)] == ["1", "2"]


def test_what_does_not_compile_is_tried_again(object_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Path:
        raise ToolchainError("kernel.cpp does not compile")

    with monkeypatch.context() as failing:
        failing.setattr(Toolchain, "compile", fail)
        with pytest.raises(ToolchainError, match="does not compile"):
            object_of(TEXT)
    assert object_of(TEXT) == "1"


KERNELS = "#include <torch/csrc/inductor/cpp_prefix.h>"
SHIM = "#include <torch/csrc/inductor/aoti_torch/c/shim.h>"


def test_the_includes_that_a_source_begins_with() -> None:
    source = f"\n{KERNELS}\n// matrix product\n{SHIM} // C\nint x;\n#include <cstdint>\n"
    assert toolchain.leading_includes(source) == [KERNELS, SHIM]


def test_what_is_said_of_compiled_kernels_may_precede_the_includes() -> None:
    wrapper = texts.text("torch_2.14.1_first_run")
    assert toolchain.leading_includes(wrapper) == ["#include <torch/csrc/inductor/aoti_include/cuda.h>"]
    assert toolchain.leading_includes(f"#define OTHER 1\n{SHIM}") == []


def test_kernels_share_the_header_of_all_kernels() -> None:
    assert toolchain.worth_precompiling([KERNELS, SHIM]) == [KERNELS]
    assert toolchain.worth_precompiling([SHIM, KERNELS]) == [KERNELS]
    assert toolchain.worth_precompiling([SHIM]) == [SHIM]
    assert toolchain.worth_precompiling([]) == []
