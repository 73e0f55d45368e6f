from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.instrument.builder.compiling import compile_library
from aoti_debug.instrument.builder.compiling.compile_library import DECLARATIONS, compile_templates
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain

FLAGS = ("-O1", "-fPIC", "-std=c++17")
SOURCE = """
#include <string>
extern "C" int device_index(const char* text) {
  std::smatch found;
  const std::string device(text);
  return std::regex_match(device, found, std::regex("([a-z]+)(:([0-9]+))?")) ? std::stoi("0" + found[3].str()) : -1;
}
"""


def test_a_wrapper_without_the_templates_works_with_the_object(tools: Toolchain, tmp_path: Path) -> None:
    if tools.compiler.is_clang:
        pytest.skip("only libstdc++ has these templates")
    templates = compile_templates(tools, FLAGS)
    assert templates is not None
    assert compile_templates(tools, FLAGS) == templates
    source = tmp_path / "wrapper.cpp"
    sizes = []
    for declarations in ("#include <regex>\n", DECLARATIONS):
        source.write_text(declarations + SOURCE)
        sizes.append(tools.compile(source, tmp_path / "wrapper.o", FLAGS).stat().st_size)
    assert sizes[1] < sizes[0] / 2
    library = tmp_path / "wrapper.so"
    objects = [str(tmp_path / "wrapper.o"), str(templates)]
    subprocess.run([tools.compiler.path, "-shared", *objects, "-o", str(library), "-Wl,-z,defs"], check=True)
    device_index = ctypes.CDLL(str(library)).device_index
    assert [device_index(text) for text in (b"cuda:3", b"cpu", b"no device!")] == [3, 0, -1]


def test_other_flags_make_another_object(tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_: Toolchain, source: Path, output: Path, words: Sequence[str]) -> Path:
        output.write_text(f"{source.name}: {' '.join(words)}")
        return output

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Toolchain, "compile", write)
    monkeypatch.setattr(Toolchain, "run", lambda *_: None)
    objects: dict[Path, str] = {}
    for word in ("-D_GLIBCXX_USE_CXX11_ABI=1", "-O0", "-fno-exceptions", "-I/include", "-DOTHER", "-Wall"):
        compiled = compile_templates(tools, (*FLAGS, word))
        assert compiled is not None
        objects.setdefault(compiled, compiled.read_text())
    flags = " ".join(FLAGS)
    relevant = ("-D_GLIBCXX_USE_CXX11_ABI=1", "-O0", "-fno-exceptions", "-I/include")
    assert list(objects.values()) == [*(f"regex.cpp: {flags} {word}" for word in relevant), f"regex.cpp: {flags}"]


def test_a_library_with_other_templates_does_without(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "regex").write_text("namespace std {}\n")
    assert compile_templates(tools, (*FLAGS, f"-I{tmp_path}")) is None
    clang = replace(tools, compiler=replace(tools.compiler, version="clang version 18.1.0"))
    assert clang.compiler.is_clang
    assert compile_templates(clang, FLAGS) is None


def test_templates_that_the_object_does_not_define(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_library, "DEFINITIONS", "#include <regex>\n")
    assert compile_templates(tools, FLAGS) is None
