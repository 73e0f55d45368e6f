from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.instrument.builder.compiling import compile_library
from aoti_debug.instrument.builder.compiling.compile_library import compile_wrapper
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from tests.once import once
from tests.paths import SMALL_LIBRARY

FLAGS = ("-O0", "-fPIC", "-std=c++17")
SOURCE = """#include <string>
extern "C" int value() { return std::string("ab").size(); }
"""


@pytest.fixture(scope="session")
def headers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The option that names a directory of headers: one for all that compile with the templates, which are kept."""

    def write(folder: Path) -> str:
        for name, text in (("with_base", WITH_BASE), ("without_base", "")):
            (folder / name).write_text(f"#pragma once\n#include <string>\n{text}")
        shutil.copy(SMALL_LIBRARY / "regex", folder)
        return f"-I{folder}"

    return once(tmp_path_factory, "wrapper-headers", write)


def names(tools: Toolchain, work: Path, *flags: str, text: str = SOURCE) -> list[str]:
    with ThreadPoolExecutor(tools.jobs) as pool:
        objects = compile_wrapper(tools, pool, work, text, [*FLAGS, *flags])
    for path in objects:
        assert subprocess.run(["nm", str(path)], capture_output=True, check=True).stdout
    return sorted(path.name for path in objects)


def test_the_templates_are_an_object_of_their_own(tools: Toolchain, tmp_path: Path, headers: str) -> None:
    expected = ["wrapper.o"] if tools.compiler.is_clang else ["regex.o", "wrapper.o"]
    assert names(tools, tmp_path, headers) == expected


def test_clang_compiles_without_declared_templates(tools: Toolchain, tmp_path: Path) -> None:
    clang = replace(tools, compiler=replace(tools.compiler, version="clang version 18.1.0"))
    assert names(clang, tmp_path) == ["wrapper.o"]


def test_a_library_whose_declarations_do_not_compile(tools: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "regex").write_text("namespace std {}\n")
    assert names(tools, tmp_path, f"-I{tmp_path}") == ["wrapper.o"]


def test_a_library_whose_declarations_compile_and_whose_templates_do_not(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: str
) -> None:
    monkeypatch.setattr(compile_library, "DEFINITIONS", "#include <no such header>\n")
    assert names(tools, tmp_path, headers) == ["wrapper.o"]


INTERFACE = """

extern "C" {
using AOTIRuntimeError = int;
AOTIRuntimeError AOTInductorModelContainerRun() {
  return 0;
}
} // extern "C"
"""
WITH_BASE = """
namespace torch::aot_inductor {
class AOTInductorModel {};
template <class Model> class AOTInductorModelBase {};
} // namespace torch::aot_inductor
"""


@pytest.mark.parametrize("header", ["with_base", "without_base"])
def test_a_model_that_does_not_compile_is_compiled_once(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: str, header: str
) -> None:
    compiled: list[str] = []
    compile_ = Toolchain.compile

    def noted(self: Toolchain, source: Path, output: Path, words: list[str]) -> Path:
        compiled.append(source.name)
        return compile_(self, source, output, words)

    monkeypatch.setattr(Toolchain, "compile", noted)
    with pytest.raises(ToolchainError, match=r"wrapper\.cpp does not compile"):
        names(tools, tmp_path, headers, text=f"#include <{header}>\n{INTERFACE}no code\n")
    assert compiled.count("wrapper.cpp") == 1
