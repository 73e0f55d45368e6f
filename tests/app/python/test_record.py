"""aoti_debug.record: packages that are loaded in a block of this process."""

from __future__ import annotations

import os
import shutil
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.package import load_package

import aoti_debug
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import torch_settings
from aoti_debug.runs.diagnosis.findings import FAULT, NO_FAULT, NONFINITE
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import ExitKind
from tests import faulty_ops  # registers the operator
from tests.built_model import FromPackage
from tests.torch_features import EXCEPTION_TEXT

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def loaded(package: Path) -> Any:
    return torch._inductor.aoti_load_package(str(package))


def test_blocks_of_one_model(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A model that was loaded in a block is recorded in this one, in later ones, and nowhere else."""
    monkeypatch.chdir(tmp_path)
    before = loaded(faulty_package)
    original = torch._C._aoti.AOTIModelPackageLoader
    with aoti_debug.record(level=2) as first:
        model = loaded(faulty_package)
        assert str(first).startswith("nothing was recorded: no model of a recorded package was called")
        model(X)
        model(X)
        assert str(first).startswith("NO FAULT still running: 8 launches so far\n")
    assert torch._C._aoti.AOTIModelPackageLoader is original
    assert [len(run.launches) for run in first.runs] == [8]
    assert [run.info.torch_settings for run in first.runs] == [torch_settings.capture()]
    assert "1 model of this process is not recorded: loaded outside of any block" in str(first)
    assert first.finding is not None
    assert (first.finding.kind, first.finding.what) == (NO_FAULT, "8 launches; outputs finite")
    model(X)
    assert [len(open_run().launches), open_run().state] == [8, ExitKind.CLEAN]
    with aoti_debug.record(out=tmp_path / "outer", filters=["cpp_*"]) as outer:
        model(X)
        with aoti_debug.record(out=tmp_path / "inner", level="hash") as inner:
            model(X)
            model(X)
        model(X)
    assert [(len(run.launches), run.level, run.info.filters) for run in outer.runs] == [(4, 3, ("cpp_*",))] * 2
    assert [(len(run.launches), run.level) for run in inner.runs] == [(8, 4)]
    assert "NO FAULT 4 launches; values not recorded" in str(outer)
    assert [len(list((tmp_path / name).glob("2*"))) for name in ("aoti-debug/runs", "outer", "inner")] == [1, 2, 1]
    assert all(run.required_package.name == faulty_package.name for run in (*outer.runs, *inner.runs))
    assert inner.runs[0].is_made_here
    assert capfd.readouterr() == ("", "")
    del before


def test_a_fault(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = aoti_debug.record(out=tmp_path)
    what = "ValueError: the answer is not 42" if EXCEPTION_TEXT else "faulty::act.default failed with error code 1"

    def block() -> None:
        with recorded:
            model = loaded(faulty_package)
            model(X)
            monkeypatch.setenv("FAULTY_OPS", "raise")
            with pytest.raises(RuntimeError):
                model(X)
            assert str(recorded).startswith(f"FAULT {what}\n  at    1.2 faulty::act.default ")
            model(X)

    with pytest.raises(RuntimeError, match="the answer is not 42" if EXCEPTION_TEXT else "API call failed"):
        block()
    finding = recorded.finding
    assert finding is not None
    assert (finding.kind, finding.what) == (FAULT, what)
    assert not any("aoti_debug/app" in frame for frame in finding.stack)
    assert [command.split()[1] for command in finding.next] == ["triage", "show"]
    assert recorded.runs[0].info.exit.exception == "RuntimeError"
    assert (tmp_path / "latest").resolve() == recorded.runs[0].path
    assert "<iframe" in recorded._repr_html_()


def test_the_call_that_a_triage_looks_into(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model: Any = None
    for keep_inputs in (False, True):
        with aoti_debug.record(keep_inputs=keep_inputs) as good:
            model = model or loaded(faulty_package)
            model(X)
        assert (good.call is not None) == keep_inputs
        if not keep_inputs:
            with pytest.raises(UsageError, match="no call of the block is known to have failed"):
                aoti_debug.triage(good)
    with aoti_debug.record(keep_inputs=True) as recorded:
        model(X)
        model(X * float("nan"))
        model(X)
    call = recorded.call
    assert call is not None
    assert (call.number, call.is_not_finite) == (1, True)
    assert str(recorded).startswith("NOT FINITE call 1 returned values that are not finite\n")
    assert f"  next  aoti-debug triage {call.package} --inputs {call.inputs}\n" in str(recorded)
    found = aoti_debug.triage(recorded, imports=["tests.faulty_ops"])
    assert (found.finding.kind, found.finding.what) == (NONFINITE, "NaN in x[0, 0], an input of the model")
    recorded.remove()
    assert recorded.runs == ()
    assert open_run().path != call.run.path


def test_where_nothing_was_seen_a_triage_looks_into_a_call_of_each_model(faulty_package: Path, tmp_path: Path) -> None:
    with aoti_debug.record(keep_inputs=True, out=tmp_path) as recorded:
        models = [loaded(faulty_package) for _ in range(3)]
        for model in models:
            model(X)
    call = recorded.call
    assert call is not None
    assert [one.run.path for one in (call, *call.others)] == [run.path for run in recorded.runs]
    assert all(one.inputs is not None and one.inputs.exists() for one in call.others)
    with aoti_debug.record(keep_inputs=True, out=tmp_path) as recorded:
        models[0](X)
        models[1](X * float("nan"))
    call = recorded.call
    assert call is not None
    assert (call.is_not_finite, call.others) == (True, ())


def test_a_model_that_other_threads_call(faulty_package: Path, tmp_path: Path) -> None:
    with aoti_debug.record(out=tmp_path) as recorded:
        # With one runner, torch waits for it and holds Python's lock, which the operator needs.
        model = load_package(str(faulty_package), num_runners=4)
        threads = [threading.Thread(target=lambda: [model(X) for _ in range(5)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(run.timeline.calls) for run in recorded.runs] == [20]


def test_a_call_that_outlives_the_block(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        leave.wait()

    monkeypatch.setitem(faulty_ops.ACTIONS, "wait", wait)
    with aoti_debug.record(out=tmp_path) as recorded:
        model = loaded(faulty_package)
        monkeypatch.setenv("FAULTY_OPS", "wait")
        thread = threading.Thread(target=model, args=(X,))
        thread.start()
        entered.wait()
    assert f"a call of {faulty_package.name} has not ended, and is recorded to its end" in str(recorded)
    monkeypatch.setenv("FAULTY_OPS", "")
    leave.set()
    thread.join()
    model(X)
    assert len(open_run(recorded.runs[0].path).launches) == 4


def test_a_forked_process(faulty_package: Path, tmp_path: Path) -> None:
    with aoti_debug.record(out=tmp_path) as recorded:
        model = loaded(faulty_package)
        model(X)
        child = os.fork()
        if child == 0:
            model(X)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    (run,) = recorded.runs
    assert len(run.launches) == 4
    assert len(open_run(run.path / f"process-{child}").launches) == 4


@pytest.mark.parametrize(
    ("level", "why"),
    [(0, "the level is 0"), (3, "only packages that are compiled or loaded in the block are recorded")],
)
def test_nothing_is_recorded(tmp_path: Path, level: int, why: str) -> None:
    with aoti_debug.record(out=tmp_path / "runs", level=level) as recorded:
        pass
    assert str(recorded) == f"nothing was recorded: {why}"
    assert (recorded.runs, recorded.finding) == ((), None)
    assert recorded._repr_html_() == f"<pre>{recorded}</pre>"
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UsageError, match="a recording has one block"):
        recorded.__enter__()


@pytest.mark.slow
def test_a_package_that_torch_has_compiled(
    from_package: Callable[[str], FromPackage], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    original = from_package("half").original
    package = Path(shutil.copy(original, tmp_path / "compiled.pt2"))
    with zipfile.ZipFile(package, "a") as archive:  # so that no earlier session has instrumented it
        archive.writestr(f"{archive.namelist()[0].partition('/')[0]}/extra/made_at", str(time.time_ns()))
    with aoti_debug.record(out=tmp_path, level=2) as recorded:
        model = loaded(package)
        x = torch.load(original.with_name("inputs.pt"))["args"]
        model(*x)
        x[0][0] = float("nan")
        model(*x)
    assert recorded.finding is not None
    assert recorded.finding.kind == NONFINITE
    assert str(recorded).startswith("NOT FINITE ")
    assert capfd.readouterr().err.startswith("aoti-debug: instrumenting compiled.pt2\n")


def test_a_file_that_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "broken.pt2").write_text("no archive")
    with aoti_debug.record(out=tmp_path / "runs") as recorded, pytest.raises(RuntimeError):
        loaded(tmp_path / "broken.pt2")
    assert "note  broken.pt2 is not recorded: " in str(recorded)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="level 9 is not one of"):
        aoti_debug.record(level=9)
    with pytest.raises(UsageError, match="filter"):
        aoti_debug.record(filters=["!"])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot make .*file: "), aoti_debug.record(out=tmp_path / "file"):
        pass
