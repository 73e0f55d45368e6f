from __future__ import annotations

from pathlib import Path

from aoti_debug.base.abi import CallFlag, Phase
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import CallPurpose, ToolCalls
from aoti_debug.runs.show.calls_and_replays import calls_text, purpose_of, replay_fact, replay_lines
from aoti_debug.runs.show.overview import header
from tests import factories
from tests.factories import JournalWriter, make_manifest, run_directory, site, statistics
from tests.runs.show.recorded import CUDA, X, level_2, replayed


def test_a_call_that_was_not_captured_has_no_replays(tmp_path: Path) -> None:
    run = level_2(tmp_path)
    assert replay_lines(run, run.launches, 100) == []
    assert run.launches[0].replay is None
    assert replay_fact(run.launches[0]) == ""


def test_calls_of_the_launches_that_are_shown(tmp_path: Path) -> None:
    run = replayed(tmp_path)
    assert replay_lines(run, run.launches[:1], 200) == [
        "statistics of replay 8 of the CUDA graph that captured call 0, the last one; earlier replays are not kept"
    ]
    assert replay_lines(run, [], 200) == []


def test_many_calls(tmp_path: Path) -> None:
    writer = JournalWriter(level=2)
    for call in range(9):
        writer.call_begin(call=call, flags=CallFlag.CAPTURING)
        writer.launch(0, 0, X, X, call=call)
        writer.call_end(call=call)
        writer.tensor_stats(0, 0, Phase.BEFORE, statistics(), layout=X.layout, call=call, replay=(call + 1, call + 1))
    run = open_run(run_directory(tmp_path, make_manifest(CUDA.sites[0], site("other")), writer))
    found = replay_lines(run, run.launches, 200)
    assert found[5].startswith("statistics of replay 6 of the CUDA graph that captured call 5,")
    assert found[6:] == ["and the last replays of 3 more calls"]


def measured(base: Path, *replays: int) -> list[str]:
    """The line of a call of which 8 replays have begun, with a launch of each of some replays."""
    writer = JournalWriter(level=2)
    writer.call_begin(flags=CallFlag.CAPTURING)
    for launch, replay in enumerate(replays):
        writer.launch(launch, 0, X, X)
        writer.tensor_stats(launch, 0, Phase.BEFORE, statistics(), layout=X.layout, replay=(replay, 8))
    writer.call_end(launches=len(replays))
    run = open_run(run_directory(base, make_manifest(CUDA.sites[0]), writer))
    return replay_lines(run, run.launches, 300)


def test_the_last_replay_had_not_measured_every_tensor(tmp_path: Path) -> None:
    assert measured(tmp_path, 8, 8, 7) == [
        "statistics of replay 8 of the CUDA graph that captured call 0, the last one, or of replay 7 where it had not "
        "measured a tensor when the run ended; earlier replays are not kept"
    ]


def test_the_last_replay_had_measured_none_of_the_tensors(tmp_path: Path) -> None:
    assert measured(tmp_path, 7, 7) == [
        "statistics of replay 7 of the CUDA graph that captured call 0; replay 8, the last one, had measured none of "
        "them when the run ended"
    ]


def a_run(base: Path, calls: int, *tool_calls: ToolCalls, asked: int = 1, captured: int = -1) -> RunDir:
    journal = JournalWriter()
    for call in range(calls):
        journal.call_begin(call=call, flags=CallFlag.CAPTURING if call == captured else 0)
        journal.call_end(call=call)
    return open_run(factories.run_directory(base, CUDA, journal, calls=asked, tool_calls=tool_calls))


def test_calls_that_were_all_asked_for(tmp_path: Path) -> None:
    run = a_run(tmp_path, 2)
    assert calls_text(run) == "2 calls"
    assert [purpose_of(run, call) for call in run.timeline.calls] == [None, None]
    assert run.info.all_calls == 1


def test_calls_of_a_profile(tmp_path: Path) -> None:
    run = a_run(tmp_path, 7, ToolCalls(CallPurpose.WARM_UP, 0, 3), ToolCalls(CallPurpose.UNPROFILED, 3, 2), asked=2)
    assert calls_text(run) == "7 calls, of which aoti-debug made 3 to warm up and 2 without the profiler"
    assert [purpose_of(run, call) for call in run.timeline.calls[2:6]] == [
        CallPurpose.WARM_UP,
        CallPurpose.UNPROFILED,
        CallPurpose.UNPROFILED,
        None,
    ]
    assert "7 calls, of which aoti-debug made" in "\n".join(header(run, 200))
    assert run.info.all_calls == 7


def test_calls_for_replays(tmp_path: Path) -> None:
    run = a_run(
        tmp_path,
        5,
        ToolCalls(CallPurpose.WARM_UP, 0, 3),
        ToolCalls(CallPurpose.CAPTURED, 3, 1),
        ToolCalls(CallPurpose.ATTRIBUTED, 4, 1),
        asked=50,
        captured=3,
    )
    assert calls_text(run) == (
        "5 calls, made by aoti-debug: 3 to warm up, 1 captured in a CUDA graph and 1 to tell the launch of each "
        "kernel; 50 replays asked for"
    )


def test_calls_that_were_announced_and_not_made(tmp_path: Path) -> None:
    run = a_run(tmp_path, 1, ToolCalls(CallPurpose.WARM_UP, 0, 3), ToolCalls(CallPurpose.UNPROFILED, 3, 20))
    assert calls_text(run) == "1 call, made by aoti-debug: 1 to warm up"
