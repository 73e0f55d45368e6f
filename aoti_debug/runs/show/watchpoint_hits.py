"""The hits of watchpoints in a few lines, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import Phase, WatchAction
from aoti_debug.base.machine.files import json_data
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.watchpoints import WatchHit, Watchpoint
from aoti_debug.runs.show import text

_SHOWN = 6  # hits of a watchpoint
_FRAMES = 6


def watch_lines(run: RunDir, width: int) -> list[str]:
    """Every watchpoint with its number of hits and the first of them; the native stack, if one was asked for."""
    lines: list[str] = []
    for watchpoint in run.timeline.watchpoints:
        lines += _watchpoint_lines(watchpoint, width)
    if any(hit.actions & WatchAction.STACK for hit in _recorded(run)):
        lines += _stack_lines(run, width)
    return lines


def hit_text(hit: WatchHit) -> str:
    """ "0.3  cpp_fused_mul_0  buf7, element 12 is 12345.0"."""
    when = " before it" if hit.phase is Phase.BEFORE else ""
    what = hit.statistic.name.lower() if hit.element is None else f"element {hit.element}"
    replay = f", in {wording.replay_of(hit.replay, hit.key.call)}" if hit.replay is not None else ""
    return f"{hit.key}  {hit.site.kernel}  {hit.argument}{when}, {what} is {hit.value:.9g}{replay}"


def _recorded(run: RunDir) -> Sequence[WatchHit]:
    return [hit for watchpoint in run.timeline.watchpoints for hit in watchpoint.recorded]


def _watchpoint_lines(watchpoint: Watchpoint, width: int) -> list[str]:
    looked = f"looked at {wording.pluralize(watchpoint.evaluated, 'time')}"
    times = wording.pluralize(watchpoint.hits, "hit") if watchpoint.hits else "no hit"
    if watchpoint.unread:
        looked += f"; could not be read {wording.pluralize(watchpoint.unread, 'more time')}"
    lines = terminal_cells.fitted(f"WATCH {watchpoint.text}: {times}, {looked}", width)
    for hit in watchpoint.recorded[:_SHOWN]:
        lines.append(terminal_cells.shorten_middle(f"  {hit_text(hit)}", width))
        lines.append(terminal_cells.shorten_middle(f"      {text.model_line(hit.site.provenance)}", width))
    more = watchpoint.hits - len(watchpoint.recorded[:_SHOWN])
    if watchpoint.recorded and more > 0:
        lines.append(f"  and {more} more")
    if watchpoint.stopped is not None:
        lines.append(f"  stopped the run at {watchpoint.stopped.key}")
    return lines


def _stack_lines(run: RunDir, width: int) -> list[str]:
    from aoti_debug.base.native import crash_stacks  # reads native stacks; most runs have no watchpoints

    caught = crash_stacks.read(run.path)
    frames = () if caught is None else caught.useful()
    shown = [terminal_cells.shorten_middle(frame, width - 11) for frame in frames[:_FRAMES]]
    return [f"  {'stack' if position == 0 else '':<9}{frame}" for position, frame in enumerate(shown)]


def watch_document(run: RunDir) -> list[dict[str, Any]]:
    """The watchpoints for JSON (docs/show.schema.json)."""
    return [
        {
            "watch": watchpoint.text,
            "hits": watchpoint.hits,
            "evaluated": watchpoint.evaluated,
            "unread": watchpoint.unread,
            "recorded": [_hit(hit) for hit in watchpoint.recorded],
        }
        for watchpoint in run.timeline.watchpoints
    ]


def _hit(hit: WatchHit) -> dict[str, Any]:
    source = hit.site.provenance.source
    return {
        "launch": str(hit.key),
        "kernel": hit.site.kernel,
        "argument": hit.argument,
        "phase": hit.phase.name.lower(),
        "statistic": hit.statistic.name.lower(),
        "element": hit.element,
        "value": json_data.number(hit.value),
        "number": hit.number,
        "replay": hit.replay,
        "source": {"file": source[0].file, "line": source[0].line} if source else None,
        "saved": bool(hit.actions & WatchAction.SAVE),
        "stopped": bool(hit.actions & WatchAction.STOP),
    }
