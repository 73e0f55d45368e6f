"""The calls that aoti-debug has made for a purpose of its own."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.abi import CallFlag
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import CallPurpose, ToolCalls
from aoti_debug.runs.show.made_calls import calls_text, purpose_of
from aoti_debug.runs.show.overview import header
from tests import factories
from tests.factories import JournalWriter
from tests.runs.show.recorded import CUDA


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
