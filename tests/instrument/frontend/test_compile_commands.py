"""The commands that torch 2.13 and 2.11 note at the end of a wrapper, as flags for this machine."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from aoti_debug.base.machine import compiler
from aoti_debug.instrument.frontend import compile_commands
from aoti_debug.instrument.frontend.sources import Flags
from tests import paths

GOLDEN = paths.GOLDEN / "recorded_commands"
TORCH = Path("/here/torch")


@pytest.mark.parametrize("name", ["torch_2.13_cpu", "torch_2.11_cuda"])
def test_commands_of_real_packages(
    golden: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(compiler, "toolkit_directories", lambda: ())
    commands = compile_commands.parse((GOLDEN / f"{name}.cpp.txt").read_text(), TORCH)
    assert commands is not None
    text = json.dumps(asdict(commands), indent=1).replace(sysconfig.get_path("include"), "PYTHON_INCLUDE")
    golden(GOLDEN / f"{name}.json", text + "\n")


def test_a_wrapper_without_commands() -> None:
    assert compile_commands.parse("int x;\n", TORCH) is None
    assert compile_commands.parse("\n// Compile cmd\n// g++ x.cpp -c -o x.o\n", TORCH) is None


@pytest.mark.parametrize("command", ["", "g++ 'x.cpp"])
def test_commands_that_cannot_be_read(command: str) -> None:
    assert compile_commands.parse(f"\n// Compile cmd\n// {command}\n// Link cmd\n// g++ x.o\n", TORCH) is None


def test_compiler_specific_flags_are_left_out() -> None:
    words = "-O1 -Wall -Werror=ignored-optimization-argument -flto=thin -Xclang -fno-validate-pch -fopenmp"
    commands = compile_commands.parse(
        f"\n// Compile cmd\n// clang++ x.cpp {words}\n// Link cmd\n// clang++ x.o\n", TORCH
    )
    assert commands is not None
    assert commands.compile.cflags == ("O3", "Wall", "fopenmp")
    flags = replace(commands.compile, cflags=("O3", "Werror=ignored-optimization-argument"))
    assert compile_commands.relocate_flags(flags, TORCH).cflags == ("O3",)


def test_directories_of_flags_become_those_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    flags = Flags(
        compiler="g++",
        definitions=("A",),
        include_dirs=("/theirs/include/python3.9", "/theirs/torch/include", "/theirs/torch/include/torch/csrc/api"),
        cflags=("O3",),
        ldflags=(),
        libraries_dirs=("/theirs/torch/lib", str(tmp_path / "mine"), "/theirs/lib"),
        libraries=("torch",),
        passthrough=("-mfma",),
    )
    relocated = compile_commands.relocate_flags(flags, TORCH)
    assert relocated.include_dirs == (
        sysconfig.get_path("include"),
        "/here/torch/include",
        "/here/torch/include/torch/csrc/api",
    )
    assert relocated.libraries_dirs == ("/here/torch/lib", str(tmp_path / "mine"))
    assert (relocated.definitions, relocated.cflags, relocated.passthrough) == (("A",), ("O3",), ("-mfma",))


def test_cuda_directories_are_those_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    text = (GOLDEN / "torch_2.11_cuda.cpp.txt").read_text().replace("/home/u/cuda", "/theirs/cuda")
    commands = compile_commands.parse(text, TORCH)
    assert commands is not None
    assert str(tmp_path / "include") in commands.compile.include_dirs
    assert "/theirs/cuda/include" not in commands.left_out
