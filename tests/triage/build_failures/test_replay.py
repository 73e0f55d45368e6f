"""The repro of a failed build: how its end is read, and one that is written and run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import failures
import pytest

from aoti_debug.builder.options import BuildOptions
from aoti_debug.frontend.build_failure import BuildFailure, Compilation, Ending
from aoti_debug.triage.build_failures.replay import outcome, replay

DEATH = replace(failures.LOWERING, ending=Ending.DEATH, what="SIGSEGV")
RAISED = "Traceback:\n  File\ntorch.exc.InductorError: LoweringException: RuntimeError: no such layout\n  target: x\n"
CRASH = "kernel.cpp:3:1: internal compiler error: Segmentation fault\n"


@pytest.mark.parametrize(
    ("failure", "code", "output", "what", "is_same"),
    [
        (failures.LOWERING, 1, RAISED, "RuntimeError: no such layout", True),
        (failures.LOWERING, 1, "Traceback:\n  File\nKeyError: 'a'\n", "KeyError: 'a'", False),
        (failures.LOWERING, 0, "it compiles\n", "it compiles", False),
        (failures.LOWERING, -11, "", "SIGSEGV", False),
        (DEATH, -11, "", "SIGSEGV", True),
        (DEATH, 1, RAISED, "exit code 1", False),
        (failures.PASS, 0, "it compiles\n", "it compiles", False),
        (failures.KERNEL, 4, CRASH, "internal compiler error: Segmentation fault", True),
        (failures.KERNEL, -9, "", "SIGKILL", False),
    ],
)
def test_the_end_of_a_script(failure: BuildFailure, code: int, output: str, what: str, is_same: bool) -> None:
    assert outcome(failure, code, output) == (what, is_same)


def test_a_script_is_written_and_run_once(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f"#!{sys.executable}\nimport sys\nsys.exit('k.cpp:3:1: error: no ' + open(sys.argv[3]).read())\n"
    )
    compiler.chmod(0o755)
    failure = replace(failures.KERNEL, what="error: no code", compilation=Compilation("code", (str(compiler), "-O3")))
    done = replay(failure, BuildOptions("model.pt2"), tmp_path / "repro")
    assert (done.what, done.is_same, done.folder) == ("error: no code", True, tmp_path / "repro")
    assert sorted(path.name for path in (tmp_path / "repro").iterdir()) == ["kernel.cpp", "repro.py"]


def test_a_script_that_never_ends_is_stopped(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nexec sleep 1000\n")
    compiler.chmod(0o755)
    failure = replace(failures.KERNEL, compilation=Compilation("", (str(compiler),)))
    done = replay(failure, BuildOptions("model.pt2", timeout=1.0), tmp_path / "repro")
    assert (done.what, done.is_same) == ("no end within 1 s", False)


def test_what_has_no_graph_has_no_script(tmp_path: Path) -> None:
    done = replay(failures.CANDIDATE, BuildOptions("model.pt2"), tmp_path / "repro")
    assert done.folder is None
    assert done.what == "no repro: no script is written of the stage autotuning"
