"""The calls of a run as text, with those that aoti-debug has made for a purpose of its own."""

from __future__ import annotations

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import CallPurpose, ToolCalls
from aoti_debug.runs.rundir.timeline import ModelCall


def calls_text(run: RunDir) -> str:
    """ "26 calls, of which aoti-debug made 3 to warm up and 20 without the profiler"."""
    calls = run.timeline.calls
    text = wording.pluralize(len(calls), "call")
    made = [(batch.purpose, number) for batch in run.info.tool_calls if (number := _recorded(run, batch))]
    if not made:
        return text
    parts = [f"{number} {purpose.value}" for purpose, number in made]
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    if all(purpose_of(run, call) is not None for call in calls):
        return f"{text}, made by aoti-debug: {listed}{_for_replays(run)}"
    return f"{text}, of which aoti-debug made {listed}"


def purpose_of(run: RunDir, call: ModelCall) -> CallPurpose | None:
    """The purpose of a call that aoti-debug has made; None for one that was asked for, and for constant folding."""
    if call.kind is not CallKind.MODEL:
        return None
    return next((batch.purpose for batch in run.info.tool_calls if call.call in batch.numbers), None)


def _recorded(run: RunDir, batch: ToolCalls) -> int:
    return sum(call.kind is CallKind.MODEL and call.call in batch.numbers for call in run.timeline.calls)


def _for_replays(run: RunDir) -> str:
    captured = any(batch.purpose is CallPurpose.CAPTURED for batch in run.info.tool_calls)
    return f"; {wording.pluralize(run.info.calls, 'replay')} asked for" if captured else ""
