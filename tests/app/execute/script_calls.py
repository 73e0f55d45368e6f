"""Calls of packages that a script made, for the tests of what becomes of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch

from aoti_debug.app.execute.failed_call import (
    CalledPackage,
    FailedCall,
    failed_call,
    with_caught,
)
from aoti_debug.app.execute.kept_inputs import KeptInputs, kept_calls
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.crash_stacks import Backtrace, Stack
from aoti_debug.package.manifest import Constant
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import (
    FAULT,
    Finding,
)
from aoti_debug.runs.run.script_process import UserScript
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests import factories
from tests.factories import JournalWriter, make_manifest, site

RUNNING = Exit(ExitKind.RUNNING)


DEAD = 1 << 30  # no process has this number


SCRIPT = UserScript("serve.py", ("80",))


Write = Callable[[JournalWriter], object]


def ended(base: Path, write: Write, *, signal: str = "", exit_: Exit = RUNNING) -> DiagnosedRun:
    """The run of a process that is gone, of one call.

    Args:
        signal: whose stack the run has.
    """
    journal = JournalWriter()
    journal.call_begin()
    write(journal)
    path = factories.run_directory(base, make_manifest(site("k")), journal, pid=DEAD, exit=exit_)
    if signal:
        stacks = Backtrace((Stack(journal.thread, signal, None, ()),))
        (path / crash_stacks.NAME).write_text(json.dumps({"format": crash_stacks.FORMAT, **asdict(stacks)}))
    return DiagnosedRun(run_directory.open_run(path))


def with_constants(run: DiagnosedRun, *names: str) -> DiagnosedRun:
    """The run, of a package with these constants."""
    constants = tuple(Constant(name, name, "float32", (2,), (1,), False, "Buffer") for name in names)
    manifest = replace(make_manifest(site("k")), constants=constants)
    (run.run.path / run_directory.MANIFEST).write_text(json_data.to_text(manifest))
    return DiagnosedRun(run_directory.open_run(run.run.path))


def in_a_launch(journal: JournalWriter) -> None:
    journal.launch_begin(0, 0)


def returned(journal: JournalWriter) -> None:
    journal.launch(0, 0)
    journal.call_end(launches=1)


def package(folder: Path, run: DiagnosedRun, *, is_finite: bool = True) -> CalledPackage:
    """A package with a call that was kept."""
    folder.mkdir()
    (folder / "packages").mkdir()
    file = folder / "packages/a.pt2"
    file.with_suffix(".json").touch()  # its calls are interposed
    value = 1.0 if is_finite else float("nan")
    KeptInputs(str(file), folder, "a", keeps_all=True).call(lambda _: [torch.tensor(value)], [torch.ones(2)])
    return CalledPackage(run, file, tuple(kept_calls(folder, os.getpid(), "a", 0)))


def chosen(*called: CalledPackage) -> FailedCall:
    found = failed_call(called)
    assert found is not None
    return found


def calls_of(folder: Path, *inputs: int, launching: Sequence[int] = (), thread: bool = False) -> CalledPackage:
    """A package of two inputs whose calls had so many: those that had not two, and those that launched, have raised."""

    def write(journal: JournalWriter) -> None:
        for call in range(inputs.count(2)):
            if call:
                journal.call_begin(call)
            journal.launch(0, 0, call=call)
            journal.call_end(call, launches=1)

    run = ended(folder / "run", write, exit_=Exit(ExitKind.CLEAN))
    manifest = replace(make_manifest(site("k")), inputs=("x", "y"))
    (run.run.path / run_directory.MANIFEST).write_text(json_data.to_text(manifest))
    file = folder / "packages/a.pt2"
    file.parent.mkdir()
    file.with_suffix(".json").touch()
    kept = KeptInputs(str(file), folder, "a", keeps_all=True)

    def call(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if len(tensors) != 2 or int(tensors[0][0]) in launching:
            raise RuntimeError("expected inputs vector size to be 2")
        return tensors

    def work() -> None:
        for number, count in enumerate(inputs):
            with suppress(RuntimeError):
                kept.call(call, [torch.full((2,), float(number))] * count)

    if thread:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()
    else:
        work()
    opened = DiagnosedRun(run_directory.open_run(run.run.path))
    return CalledPackage(opened, file, tuple(kept_calls(folder, os.getpid(), "a", 0)))


def looked_into(called: CalledPackage, exit_code: int = 0, *, is_ended_by_error: bool = False) -> FailedCall:
    found = with_caught([called], called.process, exit_code, is_ended_by_error=is_ended_by_error)
    return chosen(*found)


CRASHED = Finding(FAULT, "it crashed")
