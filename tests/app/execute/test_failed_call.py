"""The call to look into, of the runs of a script and of the processes that it has started."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.app.execute import execute
from aoti_debug.app.execute import failed_call as failed_call_module
from aoti_debug.app.execute.failed_call import (
    FailedCall,
    called_packages,
    failed_call,
)
from aoti_debug.app.execute.kept_inputs import FOLDER, KeptInputs, kept_calls
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.steps import Stopwatch
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.run.supervise import Report
from aoti_debug.runs.rundir import run_directory, run_json
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests.app.execute.script_calls import (
    Write,
    calls_of,
    chosen,
    ended,
    in_a_launch,
    looked_into,
    package,
    returned,
)
from tests.factories import make_manifest, site


def test_a_call_with_a_wrong_number_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may pass a runner any number of tensors: they are kept as they are, and what reads them says so."""
    called = package(tmp_path / "run", ended(tmp_path / "first", returned))
    assert called.package is not None
    called.package.with_suffix(".json").unlink()
    leaves = tuple(Leaf(name, dtype="torch.float32", shape=(Dim(2, 2),)) for name in "xy")
    monkeypatch.setattr(input_files, "read_signature", lambda _: ModelSignature(leaves, "a structure"))
    monkeypatch.setattr(archive, "inspect", lambda _: None)
    monkeypatch.setattr(failed_call_module, "_with_weights", lambda package, *_: (package, False))
    inputs = chosen(called).inputs
    assert inputs is not None
    (only,) = torch.load(inputs)
    assert torch.equal(only, torch.ones(2))


@pytest.mark.parametrize(("is_first", "is_child"), [(True, False), (False, False), (True, True), (False, True)])
def test_a_call_that_is_refused_before_it_begins_is_the_one_that_failed(
    tmp_path: Path, is_first: bool, is_child: bool
) -> None:
    """As one with a wrong number of inputs: there is no run of its package."""
    path = tmp_path / "run"
    package(path, ended(tmp_path / "first", returned))
    other = path / "packages/b.pt2"
    other.touch()
    other.with_suffix(".json").write_text(json_data.to_text(make_manifest(site("b"))))

    def refuse(_: object) -> None:
        raise RuntimeError("expected inputs vector size to be 2, but got 1")

    with pytest.raises(RuntimeError):
        KeptInputs(str(other), path, "b", keeps_all=True).call(refuse, [torch.full((2,), 7.0)])
    info = replace(ended(tmp_path / "of_b", returned).run.info, pid=os.getpid())
    if not is_first:
        (path / run_directory.MANIFEST).write_text(json_data.to_text(make_manifest(site("k"))))
        (path / "packages/a.json").write_bytes((path / run_directory.MANIFEST).read_bytes())
    run_json.write(info, path)
    if is_child:
        info = replace(info, pid=os.getpid() + 1)
    for _ in range(2):
        failed_call_module.keep_refused_call(path, info)
    folders = [file.parent for file in path.glob(f"**/{run_directory.MANIFEST}")]
    assert len(folders) == (1 if is_first else 2)
    runs = [DiagnosedRun(run_directory.open_run(folder)) for folder in folders]
    found = failed_call(called_packages(path, runs))
    assert found is not None
    assert (found.package, found.number, len(found.run.launches)) == (other, 0, 0)
    assert found.inputs is not None
    assert torch.equal(torch.load(found.inputs)[0], torch.full((2,), 7.0))


def test_a_refused_call_is_not_blamed_for_a_later_one(tmp_path: Path) -> None:
    """A script may catch what a call with a wrong number of inputs raises: no call of the run belongs to it."""
    run = ended(tmp_path / "of_a", in_a_launch, signal="SIGSEGV")
    manifest = replace(make_manifest(site("k")), inputs=("x", "y"))
    (run.run.path / run_directory.MANIFEST).write_text(json_data.to_text(manifest))
    called = package(tmp_path / "a", DiagnosedRun(run_directory.open_run(run.run.path)))
    assert called.package is not None

    def refuse(_: object) -> None:
        raise RuntimeError

    calls = KeptInputs(str(called.package), tmp_path / "b", "a", keeps_all=True)
    for inputs in ([torch.ones(2)], [torch.ones(2), torch.zeros(2)]):
        with pytest.raises(RuntimeError):
            calls.call(refuse, inputs)
    found = chosen(replace(called, calls=tuple(kept_calls(tmp_path / "b", os.getpid(), "a", 0))))
    assert (found.number, found.why) == (1, "SIGSEGV (Segmentation fault)")


def test_the_exception_that_ended_the_script_was_not_caught(tmp_path: Path) -> None:
    found = looked_into(calls_of(tmp_path, 1, 2, 3), 1, is_ended_by_error=True)
    assert (found.number, [call.number for call in found.caught]) == (2, [0])


def test_a_call_that_failed_in_a_launch_is_looked_into_though_it_was_caught(tmp_path: Path) -> None:
    assert looked_into(calls_of(tmp_path, 2, 2, 2, launching=(1,))).number == 1


def test_whether_another_thread_caught_what_a_call_raised_is_not_known(tmp_path: Path) -> None:
    assert looked_into(calls_of(tmp_path, 2, 1, 2, thread=True)).number == 1


def test_of_equal_packages_the_one_that_the_process_has_called(tmp_path: Path) -> None:
    """Two processes may have instrumented one package, each under a name of its own."""
    run = ended(tmp_path / "run", returned)
    manifest = (run.run.path / run_directory.MANIFEST).read_bytes()
    (tmp_path / "packages").mkdir()
    for name in "abc":
        (tmp_path / f"packages/{name}.pt2").touch()
        (tmp_path / f"packages/{name}.json").write_bytes(manifest)
    process = run.run.info.pid if run.run.journal is None else run.run.journal.header.pid
    package(tmp_path / "kept", run)
    (tmp_path / "kept" / FOLDER).rename(tmp_path / FOLDER)
    (tmp_path / FOLDER / str(os.getpid())).rename(tmp_path / FOLDER / str(process))
    (tmp_path / FOLDER / f"{process}/a").rename(tmp_path / FOLDER / f"{process}/b")
    (found,) = called_packages(tmp_path, [run])
    assert found.package == tmp_path / "packages/b.pt2"
    assert [call.number for call in found.calls] == [0]


@pytest.mark.parametrize("order", [1, -1])
def test_of_packages_with_nan_the_first_in_time(tmp_path: Path, order: int) -> None:
    """The gradient becomes NaN in the backward graph, and the weights that the forward graph reads only later."""
    clean = Exit(ExitKind.CLEAN)
    backward = package(tmp_path / "b", ended(tmp_path / "of_b", returned, exit_=clean), is_finite=False)
    forward = package(tmp_path / "f", ended(tmp_path / "of_f", returned, exit_=clean), is_finite=False)
    assert chosen(*[forward, backward][::order]).run == backward.run


def test_a_crash_comes_before_a_process_that_was_ended_in_a_launch(tmp_path: Path) -> None:
    """A pool ends its other processes when one has crashed."""
    other = package(tmp_path / "o", ended(tmp_path / "of_o", in_a_launch, signal="SIGTERM"))
    crashed = package(tmp_path / "c", ended(tmp_path / "of_c", in_a_launch, signal="SIGSEGV"))
    assert chosen(other, crashed).run == crashed.run


def test_a_run_that_gives_up_its_place_is_found_where_it_lies_then(tmp_path: Path) -> None:
    """The run of the call to look into takes the place of the first one, which is that of another package."""
    clean = Exit(ExitKind.CLEAN)
    first = package(tmp_path / "a", ended(tmp_path / "of_a", returned, exit_=clean))
    path = first.run.path
    inner = ended(tmp_path / "of_b", returned, exit_=clean).run.path.rename(path / "process-7-1")
    second = package(tmp_path / "b", DiagnosedRun(run_directory.open_run(inner)))
    found = chosen(first, second)
    (other,) = found.others
    assert found.inputs is not None
    assert other.inputs is not None
    other.inputs.write_bytes(b"of the second run")
    found, other = replace(other, others=(replace(found, others=()),)), found
    moved = execute._moved_first(path, found)
    assert moved.inputs == path / "call-0.pt"
    assert moved.inputs.read_bytes() == b"of the second run"
    assert [one.run.path for one in moved.others] == [path / "process-7-1"]
    assert moved.others[0].inputs == path / "process-7-1" / "call-0.pt"
    assert moved.others[0].inputs.read_bytes() != b"of the second run"


def test_where_nothing_was_seen_the_others_are_the_last_calls_of_the_other_packages(tmp_path: Path) -> None:
    clean = Exit(ExitKind.CLEAN)
    first = package(tmp_path / "a", ended(tmp_path / "of_a", returned, exit_=clean))
    second = package(tmp_path / "b", ended(tmp_path / "of_b", returned, exit_=clean))
    found = chosen(first, second)
    assert found.run == first.run
    (left,) = found.others
    assert (left.run, left.package, left.has_other_weights) == (second.run, second.package, False)
    assert left.inputs is not None
    assert torch.equal(torch.load(left.inputs)[0], torch.ones(2))
    unkept = chosen(replace(first, calls=()), second)
    assert (unkept.package, [(other.package, other.inputs) for other in unkept.others]) == (
        second.package,
        [(first.package, None)],
    )
    faulty = package(tmp_path / "c", ended(tmp_path / "of_c", returned, exit_=clean), is_finite=False)
    assert chosen(first, second, faulty).others == ()
    assert (chosen(first, second, faulty).packages, found.packages, chosen(faulty).packages) == (3, 2, 1)


def test_calls_move_with_their_runs(tmp_path: Path) -> None:
    runs = [ended(tmp_path / "old" / name, returned, exit_=Exit(ExitKind.CLEAN)).run for name in ("a", "b")]
    runs.append(ended(tmp_path / "elsewhere", returned, exit_=Exit(ExitKind.CLEAN)).run)
    first, *others = [FailedCall(run, tmp_path / "p.pt2", 3, run.path / "call-3.pt", "") for run in runs]
    unkept = replace(first, inputs=None)
    call = replace(first, others=(*others, unkept))
    (tmp_path / "old").rename(tmp_path / "new")
    moved = call.moved(tmp_path / "old", tmp_path / "new")
    for one, run in zip((moved, moved.others[0]), runs, strict=False):
        assert one.run.path == tmp_path / "new" / run.path.relative_to(tmp_path / "old")
        assert one.inputs == one.run.path / "call-3.pt"
    assert moved.others[1] == others[1]
    assert (moved.others[2].inputs, moved.others[2].run.path) == (None, moved.run.path)


def test_a_process_of_a_script_is_started_again_by_the_command_of_the_script(tmp_path: Path) -> None:
    words = ("aoti-debug", "exec", "serve.py")
    script = ended(tmp_path / "script", returned).run
    run_json.write(replace(script.info, command=words), script.path)
    child = ended(tmp_path / "child", in_a_launch).run
    found = execute._finished_child(child.path, child.info, script.path, Report(Stopwatch("read")))
    assert found.run.info.command == words


@pytest.mark.parametrize(
    ("write", "signal", "is_fault"),
    [
        (returned, "SIGTERM", False),
        (returned, "", False),
        (returned, "SIGSEGV", True),
        (in_a_launch, "SIGTERM", True),
        (lambda journal: journal.launch(0, 0), "", True),
    ],
)
def test_a_process_that_a_script_has_started_and_ended(
    tmp_path: Path, write: Write, signal: str, *, is_fault: bool
) -> None:
    path = ended(tmp_path, write, signal=signal).run.path
    info = run_directory.open_run(path).info
    found = execute._finished_child(path, info, tmp_path, Report(Stopwatch("read")))
    assert (found.verdict is not None) == is_fault
    assert run_directory.open_run(path).state is (ExitKind.ABORTED if is_fault else ExitKind.CLEAN)


@pytest.mark.parametrize(
    ("write", "signal", "state"),
    [
        (in_a_launch, "", ExitKind.TIMEOUT),
        (in_a_launch, "SIGSEGV", ExitKind.ABORTED),
        (returned, "", ExitKind.CLEAN),
    ],
)
def test_a_process_that_had_crashed_before_its_script_was_killed_does_not_hang(
    tmp_path: Path, write: Write, signal: str, state: ExitKind
) -> None:
    path = ended(tmp_path, write, signal=signal).run.path
    killed = Report(Stopwatch("read"), kill_reason="no progress for 60 s")
    execute._finished_child(path, run_directory.open_run(path).info, tmp_path, killed)
    assert run_directory.open_run(path).state is state


@pytest.mark.parametrize(("write", "state"), [(in_a_launch, ExitKind.TIMEOUT), (returned, ExitKind.CLEAN)])
def test_a_package_that_was_in_no_call_when_the_script_was_killed_does_not_hang(
    tmp_path: Path, write: Write, state: ExitKind
) -> None:
    opened = ended(tmp_path, write).run
    assert opened.journal is not None
    info = replace(opened.info, pid=opened.journal.header.pid)
    killed = Report(Stopwatch("read"), kill_reason="no progress for 60 s", returncode=-9)
    found = execute._finished(opened.path, info, killed)
    assert found.run.state is state
    assert (found.verdict is not None) == (state is ExitKind.TIMEOUT)


@pytest.mark.parametrize(("write", "state"), [(in_a_launch, ExitKind.FAULT), (returned, ExitKind.CLEAN)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_that_is_ended_between_launches_has_no_fault(
    tmp_path: Path, write: Write, state: ExitKind, number: signal.Signals
) -> None:
    opened = ended(tmp_path, write).run
    assert opened.journal is not None
    info = replace(opened.info, pid=opened.journal.header.pid)
    found = execute._finished(opened.path, info, Report(Stopwatch("read"), returncode=-number))
    assert (found.verdict is not None) == (state is not ExitKind.CLEAN)
    if state is ExitKind.CLEAN:
        assert found.run.info.exit.detail == f"between launches: the script was ended by {number.name}"
