"""The process that a package runs in, without one."""

from __future__ import annotations

import io
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run import device_profiler, worker
from aoti_debug.runs.run.device_profiler import DeviceTimes
from aoti_debug.runs.run.protocol import RunRequest


class Model:
    """A model that says whether it is still loaded."""

    def __call__(self) -> None:
        pass


class Pipe(io.StringIO):
    """Keeps, with each message, whether the model was loaded when it was sent."""

    def __init__(self, model: weakref.ref[Model]) -> None:
        super().__init__()
        self._model = model
        self.loaded: dict[str, bool] = {}

    def write(self, text: str) -> int:
        self.loaded[" ".join(str(value) for value in json.loads(text).values())] = self._model() is not None
        return super().write(text)


@pytest.mark.parametrize("is_profiled", [False, True])
def test_the_model_is_unloaded_before_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_profiled: bool
) -> None:
    loaded = [Model()]
    pipe = Pipe(weakref.ref(loaded[0]))
    calls: list[int] = []

    def measure(call: Callable[[], Any], *_: object) -> None:
        call()
        calls.append(1)

    monkeypatch.setattr(archive, "inspect", lambda _: None)
    monkeypatch.setattr(worker, "_inputs", lambda *_: Inputs((), {}))
    monkeypatch.setattr(worker, "_load", lambda *_, **__: loaded.pop())
    monkeypatch.setattr(worker, "_can_profile", lambda _: True)
    monkeypatch.setattr(device_profiler, "measure", measure)
    times = DeviceTimes(3) if is_profiled else None
    worker._run(RunRequest("model.pt2", str(tmp_path), "cpu", calls=8, device_times=times), pipe)
    assert len(calls) == int(is_profiled)
    first, *_, last = pipe.loaded.values()
    assert "unloaded" in list(pipe.loaded)[-1]
    assert first
    assert not last


def test_results_that_cannot_be_saved_are_no_fault_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "inspect", lambda _: None)
    monkeypatch.setattr(worker, "_inputs", lambda *_: Inputs((), {}))
    monkeypatch.setattr(worker, "_load", lambda *_, **__: Model())
    folder = tmp_path / "a file"
    folder.touch()
    pipe = io.StringIO()
    worker._run(RunRequest("model.pt2", str(tmp_path), "cpu", outputs=str(folder)), pipe)
    messages = [json.loads(line) for line in pipe.getvalue().splitlines()]
    (unsaved,) = [message for message in messages if message["message"] == "unsaved"]
    assert unsaved["error"]["message"] == f"what the model returned cannot be saved: File exists: {folder}"
    assert messages[-1]["message"] == "unloaded"
