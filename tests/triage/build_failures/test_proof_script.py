"""The repro of a failed build: how its end is read, and one that is written and run."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.machine.processes import tied_process
from aoti_debug.base.machine.processes.child_process import FinishedProcess
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailure, Compilation, Ending
from aoti_debug.triage.build_failures import proof_script as module
from aoti_debug.triage.build_failures.proof_script import outcome, replay
from tests.shell_children import is_dead, wait_for
from tests.triage.build_failures import failures

TRIAGE = """
import sys
from pathlib import Path
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure, BuildStage, Compilation, Ending, Position
)
from aoti_debug.triage.build_failures.proof_script import replay
failure = BuildFailure(
    Position(BuildStage.CPP, "kernel"), Ending.EXCEPTION, "error: no", compilation=Compilation("", (sys.argv[1],))
)
replay(failure, BuildOptions("model.pt2"), Path(sys.argv[2]))
"""
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


@pytest.mark.parametrize(("size", "said"), [("4", ""), ("s6", ", with 8 in the place of s6")])
def test_sizes_that_are_made_up_are_told(size: str, said: str) -> None:
    (graph,) = failures.REFERENCE.graphs
    nodes = [
        replace(n, types=tuple(t and replace(t, shape=(size,), strides=("1",)) for t in n.types)) for n in graph.nodes
    ]
    reference = replace(failures.REFERENCE, graphs=(replace(graph, nodes=tuple(nodes)),))
    assert module._made_up(replace(failures.LOWERING, reference=reference)) == said
    assert module._made_up(replace(failures.KERNEL, reference=reference)) == ""
    assert module._made_up(replace(failures.LOWERING, reference=None)) == ""


def test_a_script_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STARTING", 0.5)
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nexec sleep 1000\n")
    compiler.chmod(0o755)
    failure = replace(failures.KERNEL, compilation=Compilation("", (str(compiler),)))
    done = replay(failure, BuildOptions("model.pt2", timeout=0.5), tmp_path / "repro")
    assert (done.what, done.is_same) == ("no end within 1 s", False)


@pytest.mark.parametrize(("limit", "given"), [(5.0, 125.0), (3600.0, 600.0)])
def test_a_script_may_take_longer_than_the_build_to_start(
    limit: float, given: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def run(*_: object, timeout: float, **__: object) -> FinishedProcess:
        limits.append(timeout)
        return FinishedProcess(0, "it compiles\n", "")

    monkeypatch.setattr(tied_process, "run", run)
    done = replay(failures.KERNEL, BuildOptions("model.pt2", timeout=limit), tmp_path / "repro")
    assert (limits, done.what) == ([given], "it compiles")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_script_and_its_compiler_end_with_the_triage(number: signal.Signals, tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho $PPID > {tmp_path / 'own'}\necho $$ > {tmp_path / 'child'}\nsleep 600\n")
    compiler.chmod(0o755)
    triage = subprocess.Popen(
        [sys.executable, "-c", TRIAGE, str(compiler), str(tmp_path / "repro")], stderr=subprocess.DEVNULL
    )
    running = [wait_for(tmp_path / "own"), wait_for(tmp_path / "child")]
    triage.send_signal(number)
    triage.wait()
    assert all(map(is_dead, running))


def test_what_has_no_graph_has_no_script(tmp_path: Path) -> None:
    done = replay(failures.CANDIDATE, BuildOptions("model.pt2"), tmp_path / "repro")
    assert done.folder is None
    assert done.what == "no repro: no script is written of the stage autotuning"


def test_a_sparse_tensor_has_no_form_in_a_script(tmp_path: Path) -> None:
    (graph,) = failures.REFERENCE.graphs
    sparse = [replace(n, types=tuple(t and replace(t, strides=()) for t in n.types)) for n in graph.nodes]
    reference = replace(failures.REFERENCE, graphs=(replace(graph, nodes=tuple(sparse)),))
    done = replay(replace(failures.LOWERING, reference=reference), BuildOptions(tmp_path / "m.pt2"), tmp_path / "repro")
    assert done.what == "no repro: node_0 has no strides, as a sparse tensor"
