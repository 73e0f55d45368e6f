"""Calls and replays on a GPU, with what its profiler recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.runs.rundir import device_activity, run_directory
from aoti_debug.runs.rundir.device_activity import Activity, Enqueued
from aoti_debug.runs.rundir.formats.journal import WallClock
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.profile.device_calls import DeviceCall, device_calls, measured_calls
from aoti_debug.views.profile.model_profile import document
from aoti_debug.views.profile.roofline import Peaks
from aoti_debug.views.profile.text import profile_lines
from aoti_debug.views.profile.trace import slices, trace_text
from tests import factories
from tests.factories import JournalWriter, tensor
from tests.schema import DOCS, problems
from tests.views.profile import measured, on_gpu
from tests.views.profile.measured import profile_of
from tests.views.profile.on_gpu import PRODUCT, REDUCE, RELU, Recorder, replayed

PEAKS = Peaks("a GPU", 10e9, {"float32": 100e9})
SAME = (PRODUCT, REDUCE, RELU, "Memset (Device)", RELU)


class Counted(tuple[Activity, ...]):
    """Activities that count how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[Activity]:
        Counted.times += 1
        return super().__iter__()


def found_in(run: RunDir) -> tuple[DeviceCall, ...]:
    activity = device_activity.read(run.path)
    assert activity is not None
    return device_calls(run, activity)


def owners(call: DeviceCall) -> list[int | None]:
    """The number of the launch of each work."""
    return [None if work.launch is None else work.launch.key.launch for work in call.works]


def called(tmp_path: Path) -> RunDir:
    recorder = Recorder()
    recorder.journal.time_ns = 50_000_000  # an error of 50 µs, were the rate of the journal's clock not known
    for number in range(3):
        recorder.call(number)
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


def test_work_is_in_order_of_time_not_of_the_host(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.call(0)
    first, second, *rest = recorder.activities
    early = replace(second, stream=8, begin_ns=first.begin_ns - 500, duration_ns=1_500)
    recorder.activities = [first, early, *rest]
    (call,) = found_in(recorder.write(tmp_path))
    assert [(work.activity.name, work.own_ns) for work in call.works[:2]] == [(REDUCE, 1_500), (PRODUCT, 39_000)]


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


def test_a_launch_within_another_one_takes_the_time_of_the_host_once(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.clock()
    recorder.journal.call_begin(0)
    recorder.launch(2, 0, 0, (PRODUCT, 1_000))
    recorder.journal.launch_begin(0, 0, *(tensor(4, 8),) * 3)
    recorder.launch(1, 1, 0)
    recorder.journal.launch_end(0)
    recorder.journal.call_end(0, launches=3)
    (call,) = found_in(recorder.write(tmp_path))
    outer = next(launch for launch in call.launches if launch.key.launch == 0)
    assert outer.end_ns is not None
    assert call.host_ns == {0: pytest.approx(outer.end_ns - outer.begin_ns, rel=0.01)}


def test_the_time_of_the_host_is_that_in_which_the_gpu_does_nothing(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.clock()
    recorder.journal.call_begin(0)
    recorder.launch(0, 0, 0, (PRODUCT, 14_000))
    recorder.launch(1, 1, 0)
    recorder.launch(2, 1, 0)
    recorder.journal.call_end(0, launches=3)
    run = recorder.write(tmp_path)
    (call,) = found_in(run)
    assert run.journal is not None
    clock = WallClock(run.journal)
    busy_until = recorder.activities[0].end_ns
    second, third = (launch for launch in call.launches if launch.site.id == 1)
    assert second.end_ns is not None
    assert third.end_ns is not None
    assert clock.unix_ns(second.begin_ns) < busy_until < clock.unix_ns(second.end_ns)
    idle = clock.unix_ns(second.end_ns) - busy_until
    assert call.host_ns == {1: idle + clock.unix_ns(third.end_ns) - clock.unix_ns(third.begin_ns)}


def test_the_middle_of_the_enqueueing_call_tells_the_launch(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.call(0)
    last = recorder.enqueued[-1]
    for begin, end in ((last.begin_ns - 3_000, last.begin_ns + 5_000), (last.begin_ns - 500, last.begin_ns + 9_500)):
        recorder.enqueued[-1] = Enqueued(last.correlation, begin, end)
        (call,) = found_in(recorder.write(tmp_path / str(end)))
        assert owners(call)[-1] == 2


def test_work_belongs_to_the_innermost_launch(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.clock()
    recorder.journal.call_begin(0)
    recorder.journal.launch_begin(0, 0, *(tensor(4, 8),) * 3)
    recorder.launch(1, 1, 0, (RELU, 1_000))
    recorder.launch(2, 1, 0, (RELU, 1_000))
    recorder.journal.time_ns += 1000
    recorder.enqueue(PRODUCT, 1_000)
    recorder.journal.launch_end(0)
    recorder.journal.time_ns += 1000
    recorder.enqueue("Memset (Device)", 1_000)
    recorder.journal.call_end(0, launches=3)
    (call,) = found_in(recorder.write(tmp_path))
    assert owners(call) == [1, 2, 0, None]


def test_activities_are_gone_through_once_for_all_calls(tmp_path: Path) -> None:
    run = called(tmp_path)
    activity = device_activity.read(run.path)
    assert activity is not None
    Counted.times = 0
    assert len(device_calls(run, replace(activity, activities=Counted(activity.activities)))) == 3
    assert Counted.times == 1


def test_a_journal_without_the_wall_clock_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "clock", lambda _: None)
    with pytest.raises(
        RunDirError, match=r"^the package was built by an older aoti-debug: run \S+ has no records"
    ) as raised:
        found_in(called(tmp_path))
    assert "build it again" in raised.value.hint


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


def test_a_last_fill_without_breadcrumbs_is_the_models(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.clock()
    recorder.journal.call_begin(0)
    recorder.launch(0, 0, 0, (PRODUCT, 1_000))
    recorder.launch(1, 1, 0, ("Memset (Device)", 1_000))
    recorder.journal.call_end(0, launches=2)
    recorder.clock()
    recorder.synchronise()
    recorder.clock()
    recorder.journal.call_begin(1, flags=on_gpu.capturing())
    recorder.launch(0, 0, 1)
    recorder.launch(1, 1, 1)
    recorder.journal.call_end(1, launches=2)
    recorder.replay(PRODUCT, "Memcpy", "Memset (Device)", breadcrumbs=False)  # one more kernel between launches
    (replay,) = found_in(recorder.write(tmp_path))
    assert [(work.activity.name, work.launch and work.launch.key.launch) for work in replay.works] == [
        (PRODUCT, 0),
        ("Memcpy", None),
        ("Memset (Device)", 1),
    ]


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
    assert found["warm_up"] == 0
    text = "\n".join(profile_lines(profile, None, UNLIMITED))
    assert text.startswith("model.pt2: ")
    assert text.splitlines()[0].endswith("; median of 3 calls, after 0 others")
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
    assert found["warm_up"] == 1  # calls before the captured one
    (profile.run.path / device_activity.NAME).unlink()  # which was read once
    events = json.loads(trace_text(slices(profile.run, 0, profile.on_device), "model.pt2"))["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "call"] == ["replay 1", "replay 2"]
    assert [event["name"] for event in events if event.get("cat") == "launch"] == [*SAME, *SAME]
    assert any(event["args"].get("name") == "GPU stream 7" for event in events)


def test_calls_before_those_with_the_profiler_are_counted(tmp_path: Path) -> None:
    recorder = Recorder()
    for number in range(7):
        recorder.call(number, kernels=number > 4)
    profile = profile_of(Path("model.pt2"), recorder.write(tmp_path), PEAKS)
    assert document(profile)["warm_up"] == 5
    assert profile_lines(profile, None, UNLIMITED)[0].endswith("; median of 2 calls, after 5 others")


def test_replays_that_took_no_time_are_an_error(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.call(0)
    recorder.call(1, flags=on_gpu.capturing(), kernels=False)
    recorder.replay(PRODUCT)
    begin = recorder.activities[-1].begin_ns
    recorder.activities[-3:] = [replace(one, begin_ns=begin, duration_ns=0) for one in recorder.activities[-3:]]
    with pytest.raises(RunDirError, match="took no time"):
        profile_of(Path("model.pt2"), recorder.write(tmp_path), PEAKS)


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    run = called(tmp_path)
    (run.path / device_activity.NAME).write_text("{}")
    with pytest.raises(RunDirError, match="is damaged"):
        profile_of(Path("model.pt2"), run, PEAKS)


def test_launches_and_gaps_are_the_call(tmp_path: Path) -> None:
    run = measured.write(tmp_path, [(50_000, 10_000, 20_000), (60_000, 11_000, 21_000), (70_000, 12_000, 22_000)])
    second, third = measured_calls(run, warm_up=1)
    assert (second.call, third.call) == (1, 2)
    assert second.launches_ns == {0: 60_000, 1: 32_000}
    assert second.counts == {0: 1, 1: 2}
    assert second.gaps_ns == 40_000
    assert second.wall_ns == 60_000 + 32_000 + 40_000


def test_a_launch_within_another_one_counts_once(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.call_begin()
    journal.launch_begin(0, 0, *(tensor(2),) * 3)  # a record a microsecond
    journal.launch(1, 1, tensor(2))
    journal.launch_end(0)
    journal.launch(2, 1, tensor(2))
    journal.call_end(launches=3)
    run = run_directory.open_run(factories.run_directory(tmp_path, measured.package(), journal))
    (call,) = measured_calls(run, warm_up=0)
    assert call.launches_ns == {0: 2_000, 1: 2_000}
    assert call.gaps_ns == call.wall_ns - 4_000


def test_calls_that_did_not_return_are_left_out(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.call_begin(0)
    journal.launch(0, 1, tensor(2), call=0)
    journal.call_end(0, failed=True)
    journal.call_begin(1)
    journal.launch_begin(0, 1, tensor(2), call=1)
    run = run_directory.open_run(factories.run_directory(tmp_path, measured.package(), journal))
    assert measured_calls(run, warm_up=0) == ()
