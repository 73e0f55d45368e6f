from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import TargetError, ToolchainError
from aoti_debug.base.machine.compiler import Compiler, Torch, find_compiler
from aoti_debug.base.machine.processes.child_process import Children
from aoti_debug.instrument.builder.compiling import toolchain
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.instrument.frontend.sources import Flags

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
