"""Calls and replays on a GPU, with what its profiler recorded."""

from __future__ import annotations

import json
from pathlib import Path

import on_gpu
import pytest
from on_gpu import PRODUCT, REDUCE, RELU, Recorder
from schema import DOCS, problems

from aoti_debug.errors import RunDirError
from aoti_debug.profile.device_calls import DeviceCall, device_calls
from aoti_debug.profile.document import document
from aoti_debug.profile.profile import profile_of
from aoti_debug.profile.roofline import Peaks
from aoti_debug.profile.slices import slices
from aoti_debug.profile.text import profile_lines
from aoti_debug.profile.trace_text import trace_text
from aoti_debug.rundir import device_activity
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.show.terminal_cells import UNLIMITED

PEAKS = Peaks("a GPU", 10e9, {"float32": 100e9})
SAME = (PRODUCT, REDUCE, RELU, "Memset (Device)", RELU)


def found_in(run: RunDir) -> tuple[DeviceCall, ...]:
    activity = device_activity.read(run.path)
    assert activity is not None
    return device_calls(run, activity)


def called(tmp_path: Path) -> RunDir:
    recorder = Recorder()
    recorder.journal.time_ns = 50_000_000  # an error of 50 µs, were the rate of the journal's clock not known
    for number in range(3):
        recorder.call(number)
    return recorder.write(tmp_path)


def replayed(tmp_path: Path, *names: str) -> RunDir:
    recorder = Recorder()
    recorder.call(0)
    recorder.call(1, flags=on_gpu.capturing(), kernels=False)
    for _ in range(2):
        recorder.replay(*names)
    return recorder.write(tmp_path)


def test_kernels_belong_to_the_launch_that_enqueued_them(tmp_path: Path) -> None:
    calls = found_in(called(tmp_path))
    assert [call.number for call in calls] == [0, 1, 2]
    for call in calls:
        assert call.measured.launches_ns == {0: 42_000, 1: 6_000}
        assert call.measured.counts == {0: 1, 1: 2}
        owners = [(work.activity.name, work.launch and work.launch.key.launch) for work in call.works]
        assert owners == [(PRODUCT, 0), (REDUCE, 0), (RELU, 1), ("Memset (Device)", None), (RELU, 2)]
        assert call.end_ns == call.works[-1].activity.end_ns
        assert call.measured.gaps_ns == call.end_ns - call.begin_ns - 48_000 > 1_000


def test_overlapping_work_counts_once(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.call(0)
    first, second, *rest = recorder.activities
    overlapping = device_activity.Activity(second.name, 8, second.correlation, first.begin_ns + 500, 45_000)
    recorder.activities = [first, overlapping, *rest]
    (call,) = found_in(recorder.write(tmp_path))
    assert [work.own_ns for work in call.works[:2]] == [40_000, 5_500]


def test_a_launch_without_work_for_the_gpu_takes_the_time_of_the_host(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.clock()
    recorder.journal.call_begin(0)
    recorder.launch(0, 0, 0, (PRODUCT, 1_000))  # done before the next one begins
    recorder.launch(1, 1, 0)
    recorder.journal.call_end(0, launches=2)
    (call,) = found_in(recorder.write(tmp_path))
    assert call.measured.launches_ns[0] == 1_000
    assert call.measured.launches_ns[1] == pytest.approx(on_gpu.LAUNCH_NS, rel=0.01)


def test_replays_run_the_kernels_of_a_call_in_its_order(tmp_path: Path) -> None:
    first, second = found_in(replayed(tmp_path, *SAME))
    assert (first.number, second.number, first.replay_of) == (1, 2, 1)
    assert first.measured.launches_ns == {0: 6_000, 1: 6_000}
    assert first.measured.counts == {0: 1, 1: 2}
    assert first.measured.wall_ns == 15_000  # without what the runtime adds at the beginning and the end
    assert [work.launch.id if work.launch else None for work in first.works] == ["1.0", "1.0", "1.1", None, "1.2"]


@pytest.mark.parametrize(
    ("names", "times"),
    [
        (
            (PRODUCT, REDUCE, RELU, "Memset (Device)", "Memcpy", RELU),
            {0: 6_000, 1: 6_000},
        ),  # one more, between launches
        ((PRODUCT, RELU, "Memset (Device)", RELU), {0: 3_000, 1: 6_000}),
        (("gemm_64x64", REDUCE, RELU, "Memset (Device)", RELU), {0: 6_000, 1: 6_000}),
        (("gemm", "first", "second", RELU, "Memset (Device)", RELU), {0: 9_000, 1: 6_000}),
    ],
)
def test_a_graph_may_run_other_kernels_of_a_launch(
    tmp_path: Path, names: tuple[str, ...], times: dict[int, int]
) -> None:
    assert [call.measured.launches_ns for call in found_in(replayed(tmp_path, *names))] == [times, times]


def test_other_kernels_of_several_launches_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="not clear for which launches: other") as raised:
        found_in(replayed(tmp_path, PRODUCT, "other", "another", "third", "Memset (Device)", RELU))
    assert "--cuda-graph" in raised.value.hint


def test_replays_without_a_recorded_call_are_an_error(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.call(0, flags=on_gpu.capturing(), kernels=False)
    recorder.replay(*SAME)
    with pytest.raises(RunDirError, match="no call that its CUDA graph can be compared with"):
        found_in(recorder.write(tmp_path))


def test_the_table_and_the_json_of_calls(tmp_path: Path) -> None:
    profile = profile_of(Path("model.pt2"), called(tmp_path), PEAKS)
    found = document(profile)
    assert problems(found, json.loads((DOCS / "profile.schema.json").read_text())) == []
    assert (found["clock"], found["replays"], found["outside"]) == ("device", False, None)
    assert found["measuring"] == {"profiled": 130e-6, "unprofiled": pytest.approx(110e-6), "back_to_back": None}
    assert found["launches"][0]["seconds"] == pytest.approx(42e-6)
    assert found["sum_to_wall"] == pytest.approx(1)
    text = "\n".join(profile_lines(profile, None, UNLIMITED))
    assert "with it a call takes 130.0 µs until it has completed, without it 110.0 µs" in text


def test_the_table_the_json_and_the_trace_of_replays(tmp_path: Path) -> None:
    profile = profile_of(Path("model.pt2"), replayed(tmp_path, *SAME), PEAKS)
    found = document(profile)
    assert problems(found, json.loads((DOCS / "profile.schema.json").read_text())) == []
    assert (found["replays"], found["launches"][0]["launch"], found["wall"]) == (True, "1.0", pytest.approx(15e-6))
    assert found["measuring"]["back_to_back"] == pytest.approx(9e-6)
    lines = profile_lines(profile, None, UNLIMITED)
    assert lines[0] == "model.pt2: 15.0 µs a replay, 3 launches; median of 2 replays"
    assert "times are those of replays of a CUDA graph on the GPU" in lines[2]
    assert lines[2].endswith("and 9.0 µs where replays follow one another")
    events = json.loads(trace_text(slices(profile.run, 0), "model.pt2"))["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "call"] == ["replay 1", "replay 2"]
    assert [event["name"] for event in events if event.get("cat") == "launch"] == [*SAME, *SAME]
    assert any(event["args"].get("name") == "GPU stream 7" for event in events)


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    run = called(tmp_path)
    (run.path / device_activity.NAME).write_text("{}")
    with pytest.raises(RunDirError, match="is damaged"):
        profile_of(Path("model.pt2"), run, PEAKS)
