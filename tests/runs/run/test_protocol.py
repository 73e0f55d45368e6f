from __future__ import annotations

import json

import pytest

from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.runs.run import protocol
from aoti_debug.runs.run.protocol import (
    CallsBegun,
    CallsDone,
    InterposedLibraries,
    Message,
    ResultsUnsaved,
    RunFailed,
    RunRequest,
    SettingsApplied,
    StageReached,
    TorchImported,
    Unloaded,
)
from aoti_debug.runs.rundir.run_json import CallPurpose, RunStage


@pytest.mark.parametrize(
    "message",
    [
        StageReached(RunStage.SYNCHRONISE),
        TorchImported("2.13.0"),
        SettingsApplied({"num_threads": 3, "default_dtype": "float64"}),
        CallsBegun(CallPurpose.UNPROFILED, 20),
        CallsDone(0.25),
        ResultsUnsaved(ErrorData("TargetError", "no room", ours="TargetError", hint="df")),
        Unloaded(),
        RunFailed(ErrorData("RuntimeError", "two\nlines", code=700)),
    ],
)
def test_a_message_is_one_line_that_reads_back(message: Message) -> None:
    line = protocol.message_line(message)
    assert "\n" not in line
    assert protocol.read_message(line.encode()) == message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello", "Expecting value"),
        (b"[1]", "it holds a list, not an object"),
        (
            b'{"seconds": 1}',
            "message is None, not one of stage reached, torch imported, settings applied, calls begun, calls done, "
            "unsaved, unloaded, failed",
        ),
        (b'{"message": []}', r"message is \[\], not one of"),
        (b'{"message": "stage reached", "stage": "lunch"}', 'stage is "lunch", not one of RunStage'),
        (b'{"message": "calls done", "seconds": "1"}', 'seconds is "1", not a finite number'),
        (b'{"message": "failed", "error": {"type": "E"}}', "error.message is missing"),
    ],
)
def test_what_is_no_message(line: bytes, reason: str) -> None:
    with pytest.raises(DamagedJsonError, match=reason):
        protocol.read_message(line)


def test_a_request_reads_back() -> None:
    request = RunRequest(
        package="/p.pt2",
        run="/runs/1",
        device="cuda",
        calls=2,
        random_inputs=0,
        interposed=InterposedLibraries("front.so", "recorder.so", "model"),
        imports=("a", "b"),
        libraries=("ops.so",),
    )
    assert json_data.parse(RunRequest, json_data.to_text(request, indent=None)) == request
    assert "\n" not in json_data.to_text(request, indent=None)


def test_a_request_without_a_package_is_refused() -> None:
    with pytest.raises(DamagedJsonError, match="package is missing"):
        json_data.parse(RunRequest, json.dumps({"run": "/runs/1", "device": "cpu"}))
