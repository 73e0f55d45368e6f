from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.instrument.builder.compiling import kept_objects
from aoti_debug.instrument.builder.compiling.kept_objects import compile_text
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from tests.instrument.wrapper import texts

TEXT = "int value() { return 1; }\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the compiler has compiled, with a cache and a header of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_objects, "RUNTIME", tmp_path)
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
    monkeypatch.setattr(kept_objects, "RUNTIME", other)
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
    assert kept_objects.leading_includes(source) == [KERNELS, SHIM]


def test_what_is_said_of_compiled_kernels_may_precede_the_includes() -> None:
    wrapper = texts.text("torch_2.14.1_first_run")
    assert kept_objects.leading_includes(wrapper) == ["#include <torch/csrc/inductor/aoti_include/cuda.h>"]
    assert kept_objects.leading_includes(f"#define OTHER 1\n{SHIM}") == []


def test_kernels_share_the_header_of_all_kernels() -> None:
    assert kept_objects.worth_precompiling([KERNELS, SHIM]) == [KERNELS]
    assert kept_objects.worth_precompiling([SHIM, KERNELS]) == [KERNELS]
    assert kept_objects.worth_precompiling([SHIM]) == [SHIM]
    assert kept_objects.worth_precompiling([]) == []
