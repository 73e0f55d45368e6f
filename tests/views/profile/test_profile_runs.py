"""Runs of a profile that do not end well."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from aoti_debug.base.abi import FaultDomain
from aoti_debug.base.errors import ModelFaultError
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.device_profiler import CaptureError, MeasuringError, NoWorkError, TooMuchWorkError
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from aoti_debug.views.profile import profile
from tests import factories
from tests.factories import JournalWriter, tensor
from tests.views.profile import on_gpu

MODEL = Path("m/model.pt2")
PROMISED = "it waits for the GPU, or does something else that a capture does not permit"


def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_: Exit, fault: str | None) -> RunOptions:
    """Options whose run ends so, with a fault in its second launch."""
    journal = JournalWriter()
    journal.call_begin(0, flags=on_gpu.capturing())
    journal.launch(0, 0, *(tensor(2),) * 3)
    journal.launch_begin(1, 1, tensor(2))
    if fault is not None:
        journal.fault(1, FaultDomain.SHIM, text=fault)
    run = run_directory.open_run(factories.run_directory(tmp_path, on_gpu.package(), journal, exit=exit_))
    monkeypatch.setattr(runner, "run", lambda *_: SimpleNamespace(run=run))
    return RunOptions(tmp_path / "model.pt2")


@pytest.mark.parametrize(("fault", "reason"), [("not permitted\nmore", "not permitted"), ("", PROMISED)])
def test_the_launch_that_cannot_be_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    exit_ = Exit(
        ExitKind.FAULT, "CaptureError: a CUDA graph cannot capture it: x", RunStage.CALL, exception="CaptureError"
    )
    with pytest.raises(CaptureError) as raised:
        profile.run_to_the_end(ending(tmp_path, monkeypatch, exit_, fault), MODEL)
    assert str(raised.value) == (f"the model: a CUDA graph cannot capture cpp_fused_relu_0 (launch 0.1): {reason}")
    assert (raised.value.exit_code, raised.value.hint) == (2, "without --cuda-graph its calls are measured")


def test_a_capture_that_fails_outside_of_any_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exit_ = Exit(
        ExitKind.FAULT, "CaptureError: a CUDA graph cannot capture it: x", RunStage.CALL, exception="CaptureError"
    )
    with pytest.raises(CaptureError, match=r"^the model: a CUDA graph cannot capture it: x$"):
        profile.run_to_the_end(ending(tmp_path, monkeypatch, exit_, None), MODEL)


@pytest.mark.parametrize("error", [NoWorkError, TooMuchWorkError])
def test_what_cannot_be_measured_keeps_its_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[MeasuringError]
) -> None:
    sent = ErrorData.from_exception(error("why: x"))
    exit_ = Exit(ExitKind.FAULT, f"{sent.type}: {sent.message}", RunStage.CALL, exception=sent.type)
    with pytest.raises(error, match=r"^the model: why: x$") as raised:
        profile.run_to_the_end(ending(tmp_path, monkeypatch, exit_, None), MODEL)
    assert (raised.value.exit_code, raised.value.hint) == (2, error.advice)


def test_another_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exit_ = Exit(ExitKind.FAULT, "killed by SIGSEGV", RunStage.CALL, signal="SIGSEGV")
    with pytest.raises(
        ModelFaultError, match=r"^model\.pt2 does not end well: 0\.1: invalid memory access in "
    ) as raised:
        profile.run_to_the_end(ending(tmp_path, monkeypatch, exit_, None), MODEL)
    assert (raised.value.exit_code, raised.value.hint) == (1, "aoti-debug triage m/model.pt2")
