"""Traces of torch's profiler, and measurements without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.errors import UsageError
from aoti_debug.runs.run import configuration, device_profiler
from aoti_debug.runs.run.device_profiler import CaptureError, DeviceTimes, NoWorkError, TooMuchWorkError
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import device_activity
from aoti_debug.runs.rundir.device_activity import Activity, Enqueued
from aoti_debug.runs.rundir.run_json import CallPurpose
from tests import factories

BASE = 1_790_857_026_000_000_000


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


TRACE = {
    "baseTimeNanoseconds": BASE,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        event("kernel", "relu", 4714918638190.25, 1.5, stream=7, correlation=22),
        event("gpu_memcpy", "Memcpy DtoD", 4714918638182.377, 4.169, stream=7, correlation=21),
        event("cuda_runtime", "cudaMemcpyAsync", 4714918638150.5, 10.25, correlation=21),
        event("cuda_driver", "cuLaunchKernel", 4714918638170.0, 2.0, correlation=22),
        event("cuda_runtime", "cudaDeviceSynchronize", 4714918638192.0, 20.0, correlation=23),
        event("cuda_runtime", "cudaGraphLaunch", 4714918638300.0, 50.0, correlation=24),
        event("kernel", "relu", 4714918638340.0, 1.0, stream=7, correlation=24),
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 1.0, "dur": 1.0, "pid": "Spans", "tid": 0},
        {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0, "ts": 1.0, "dur": 2.0},
    ],
}


def test_work_and_what_enqueued_it() -> None:
    enqueued, activities = device_profiler.from_trace(TRACE)
    at = BASE + 4714918638000_000
    assert activities == (
        Activity("Memcpy DtoD", 7, 21, at + 182_377, 4_169),
        Activity("relu", 7, 22, at + 190_250, 1_500),
        Activity("relu", 7, 24, at + 340_000, 1_000),
    )
    assert enqueued == (
        Enqueued(21, at + 150_500, at + 160_750),
        Enqueued(22, at + 170_000, at + 172_000),
        Enqueued(24, at + 300_000, at + 350_000, replays=True),
    )


class Stream:
    def wait_stream(self, _: Stream) -> None:
        pass


class Graph:
    """A CUDA graph that counts its replays."""

    def __init__(self) -> None:
        self.replays = 0
        graphs.append(self)

    def replay(self) -> None:
        self.replays += 1


graphs: list[Graph] = []


class Profiler:
    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(json.dumps(TRACE))


@contextmanager
def capture(_: Graph, stream: Stream) -> Iterator[None]:
    yield


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of torch that a measurement calls, without a GPU."""
    graphs.clear()
    names: dict[str, Callable[..., Any]] = {
        "synchronize": lambda: None,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda _: capture(Graph(), Stream()),
        "CUDAGraph": Graph,
        "graph": capture,
    }
    for name, replacement in names.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    monkeypatch.setattr(device_profiler, "_profiler", Profiler)


announced: list[tuple[CallPurpose, int]] = []


def told(purpose: CallPurpose, count: int) -> None:
    announced.append((purpose, count))


@pytest.fixture(autouse=True)
def nothing_announced() -> None:
    announced.clear()


@pytest.mark.usefixtures("cuda")
def test_calls_are_measured_with_and_without_the_profiler(tmp_path: Path) -> None:
    calls: list[int] = []
    device_profiler.measure(lambda: calls.append(1), DeviceTimes(3), 50, tmp_path, told)
    found = device_activity.read(tmp_path)
    assert found is not None
    assert (len(found.unprofiled), len(found.profiled), found.back_to_back) == (20, 50, ())
    assert len(calls) == 3 + 20 + 50
    assert announced == [(CallPurpose.WARM_UP, 3), (CallPurpose.UNPROFILED, 20), (CallPurpose.ASKED, 50)]
    assert len(found.activities) == 3


@pytest.mark.usefixtures("cuda")
def test_replays_are_measured_one_by_one_and_in_a_row(tmp_path: Path) -> None:
    calls: list[int] = []
    device_profiler.measure(lambda: calls.append(1), DeviceTimes(3, replays=True), 50, tmp_path, told)
    found = device_activity.read(tmp_path)
    assert found is not None
    assert (len(found.unprofiled), len(found.profiled), len(found.back_to_back)) == (20, 50, 20)
    assert len(calls) == 3 + 1 + 1
    assert announced == [(CallPurpose.WARM_UP, 3), (CallPurpose.CAPTURED, 1), (CallPurpose.ATTRIBUTED, 1)]
    assert graphs[-1].replays == 20 + 20 * 10 + 50


@pytest.mark.usefixtures("cuda")
def test_the_first_error_of_a_capture_is_told(tmp_path: Path) -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        if len(calls) == 4:
            try:
                raise RuntimeError("operation not permitted when stream is capturing\nmore")
            except RuntimeError:
                raise RuntimeError("operation failed due to a previous error during capture") from None

    with pytest.raises(CaptureError, match="a CUDA graph cannot capture it: operation not permitted when") as raised:
        device_profiler.measure(call, DeviceTimes(3, replays=True), 50, tmp_path, told)
    assert raised.value.exit_code == 2
    assert raised.value.hint


@pytest.mark.usefixtures("cuda")
def test_a_profiler_that_records_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRACE, "traceEvents", [])
    with pytest.raises(NoWorkError, match="has recorded no work of the GPU") as raised:
        device_profiler.measure(lambda: None, DeviceTimes(3), 5, tmp_path, told)
    assert "another profiler" in raised.value.hint


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("replays", [False, True])
def test_more_than_can_be_recorded_is_an_error_before_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replays: bool
) -> None:
    monkeypatch.setattr(device_activity, "MAX_ACTIVITIES", 500)
    calls: list[int] = []
    with pytest.raises(
        TooMuchWorkError, match="about 600 kernels, copies and fills in 200 calls: more than the 500"
    ) as raised:
        device_profiler.measure(lambda: calls.append(1), DeviceTimes(3, replays), 200, tmp_path, told)
    assert "--calls" in raised.value.hint
    assert len(calls) == sum(count for _, count in announced)
    assert announced[-1] == (CallPurpose.SIZED, 1)
    assert device_activity.read(tmp_path) is None


@pytest.mark.usefixtures("cuda")
def test_more_than_can_be_recorded_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_activity, "MAX_ACTIVITIES", 2)
    with pytest.raises(TooMuchWorkError, match="3 kernels, copies and fills in 5 calls"):
        device_profiler.measure(lambda: None, DeviceTimes(3), 5, tmp_path, told)
    assert device_activity.read(tmp_path) is None


def test_a_model_on_a_cpu_has_no_replays(tmp_path: Path) -> None:
    options = RunOptions(tmp_path / "model.pt2", device_times=DeviceTimes(3, replays=True))
    configuration.check_device(factories.make_manifest(device="cuda"), options)
    with pytest.raises(UsageError, match=r"model\.pt2 runs on a CPU: no CUDA graph can capture it") as raised:
        configuration.check_device(factories.make_manifest(), options)
    assert "--cuda-graph" in raised.value.hint
