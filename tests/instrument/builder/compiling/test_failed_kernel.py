"""The kernel that a compiler fails on. The compiler is a script: it fails on a word in its source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.base.machine.compiler import Compiler, Torch
from aoti_debug.instrument.builder.compiling import failed_kernel
from aoti_debug.instrument.builder.compiling.toolchain import CompileError, Toolchain
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailureError, BuildStage, Ending, Position
from aoti_debug.package import program_graphs
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference

KERNELS = """#include "cpp_prefix.h"
extern "C"  void cpp_fused_relu_0(float* out)
{
}

#include "cpp_prefix.h"
extern "C"  void cpp_fused_erf_1(float* out)
{
    crash();
}
"""
NODES = (Node("relu", NodeKind.CALL, "aten.relu.default"), Node("erf", NodeKind.CALL, "aten.erf.default"))
INFORMATION = {
    "cpp_fused_relu_0:1": {"post_grad_nodes": ["relu"]},
    "cpp_fused_erf_1:2": {"post_grad_nodes": ["erf", "l_bias"]},
}


def tools(folder: Path, *, word: str = "crash", ending: str = "exit 4") -> Toolchain:
    compiler = folder / "compiler"
    compiler.write_text(
        f'#!/bin/sh\nif grep -q "{word}" "$2"; then\n'
        f'  echo "$2:9:1: internal compiler error: Segmentation fault" >&2; {ending}\nfi\n'
    )
    compiler.chmod(0o755)
    return Toolchain(Compiler(str(compiler), "fake 1"), Torch("2.13.0", Path("/nowhere"), "fingerprint"))


def explained(folder: Path, toolchain: Toolchain, name: str = "kernel.cpp") -> Any:
    reference = folder / "reference.json"
    reference.write_text(program_graphs.to_json(Reference(FORMAT, "2.13.0", (Graph("", MODEL, NODES, ()),))))
    sources = SimpleNamespace(kernels=KERNELS, provenance=json.dumps(INFORMATION))
    lowered: Any = SimpleNamespace(sources=sources, reference_file=reference)
    source = folder / name
    source.write_text(KERNELS)
    with pytest.raises(CompileError) as caught:
        toolchain.compile(source, folder / "kernel.o", ["-O3", "-include", "/cache/header.h"])
    return caught.value, failed_kernel.explain(caught.value, lowered, toolchain, folder)


@pytest.mark.parametrize(
    ("ending", "what", "kind"),
    [
        ("exit 4", "internal compiler error: Segmentation fault", Ending.EXCEPTION),
        ("kill -9 $$", "SIGKILL", Ending.DEATH),
    ],
)
def test_the_kernel_and_its_operators_are_named(tmp_path: Path, ending: str, what: str, kind: Ending) -> None:
    toolchain = tools(tmp_path, ending=ending)
    _, error = explained(tmp_path, toolchain)
    assert isinstance(error, BuildFailureError)
    failure = error.failure
    assert (failure.what, failure.ending) == (what, kind)
    assert failure.position == Position(BuildStage.CPP, "cpp_fused_erf_1", "erf")
    assert failure.operators == ("aten.erf.default",)
    assert failure.compilation is not None
    assert failure.compilation.command == (toolchain.compiler.path, "-O3")
    assert "cpp_fused_relu_0" not in failure.compilation.source


def test_a_compiler_that_fails_on_everything_is_a_matter_of_the_machine(tmp_path: Path) -> None:
    error, explanation = explained(tmp_path, tools(tmp_path, word=""), "kernel.cpp")
    assert explanation is error


def test_a_full_disk_is_a_matter_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    error, explanation = explained(tmp_path, tools(tmp_path))
    assert explanation is error


def test_another_file_is_no_kernel(tmp_path: Path) -> None:
    error, explanation = explained(tmp_path, tools(tmp_path), "wrapper.cpp")
    assert explanation is error


def test_errors_of_a_compiler_in_one_line() -> None:
    said = "k.cpp: In function 'void f()':\nk.cpp:3:1: error: 'x' was not declared\n    3 | x;\n"
    assert failed_kernel.error_text(1, said) == "error: 'x' was not declared"
    assert failed_kernel.error_text(3, "no room") == "exit code 3"
    assert failed_kernel.error_text(-11, said) == "SIGSEGV"
