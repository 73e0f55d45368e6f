"""The calls of a run and the replays of its CUDA graphs, as text: who made them, and the first ones with NaN."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Launch, ModelCall
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import CallPurpose, ToolCalls


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


@dataclass(frozen=True)
class FirstReplay:
    """The first replay that a non-finite value was seen in, after a launch.

    Attributes:
        launch: of the call that the graph captured.
        argument: the tensor's name in the launch.
        value: NaN, inf or -inf.
        replay: its number, from 1.
    """

    launch: LaunchKey
    kernel: str
    argument: str
    value: float
    replay: int


def first_replays(run: RunDir) -> tuple[FirstReplay, ...]:
    """The first replay of each launch, argument and value, in the order of the replays and launches.

    Raises:
        RunDirError: the summaries of the run cannot be read.
    """
    if not run.timeline.calls.has_graphs:
        return ()
    first: dict[tuple[LaunchKey, str, str], FirstReplay] = {}
    for seen in (*_watched(run), *_summarised(run)):
        key = (seen.launch, seen.argument, str(seen.value))
        if key not in first or seen.replay < first[key].replay:
            first[key] = seen
    return tuple(sorted(first.values(), key=lambda seen: (seen.replay, seen.launch.call, seen.launch.launch)))


def _watched(run: RunDir) -> Iterator[FirstReplay]:
    for watchpoint in run.timeline.watchpoints:
        for hit in watchpoint.recorded:
            if hit.replay is not None and hit.phase is Phase.AFTER and not math.isfinite(hit.value):
                yield FirstReplay(hit.key, hit.site.kernel, hit.argument, hit.value, hit.replay)


def _summarised(run: RunDir) -> Iterator[FirstReplay]:
    from aoti_debug.runs.rundir import summaries  # reads archives of arrays; only a run with a CUDA graph needs it

    found = summaries.read(run)
    for series in () if found is None else found.series:
        if series.captured_call is None:
            continue
        launch = LaunchKey(CallKind.MODEL, series.captured_call, series.launch)
        for sample in series.samples:
            counts = {math.nan: sample.n_nan, math.inf: sample.n_pos_inf, -math.inf: sample.n_neg_inf}
            for value, count in counts.items():
                if count:
                    yield FirstReplay(launch, series.kernel, series.argument, value, sample.number)


_SHOWN = 6  # calls
_SPECIALS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def replay_fact(launch: Launch) -> str:
    """ "statistics of replay 731 of the CUDA graph that captured call 1"; "" if no replay measured the launch."""
    return "" if launch.replay is None else _of_replay(launch.replay, launch.key.call)


def replay_lines(run: RunDir, launches: Sequence[Launch], width: int) -> list[str]:
    """Lines on each captured call of some launches: the replay that its statistics are of, and the first with NaN."""
    by_call: dict[tuple[CallKind, int], list[Launch]] = defaultdict(list)
    for launch in launches:
        by_call[launch.key.kind, launch.key.call].append(launch)
    captured = run.timeline.calls if run.timeline.calls.has_graphs else ()
    calls = [call for call in captured if call.replays is not None and (call.kind, call.call) in by_call]
    texts = [_call_text(call, by_call[call.kind, call.call]) for call in calls[:_SHOWN]]
    lines = [line for text in texts for line in terminal_cells.wrapped(text, width)]
    if len(calls) > _SHOWN:
        lines.append(f"and the last replays of {wording.pluralize(len(calls) - _SHOWN, 'more call')}")
    ids = {launch.key for launch in launches}
    return lines + [
        line for text in _nonfinite_texts(run, ids)[:_SHOWN] for line in terminal_cells.wrapped(text, width)
    ]


def _nonfinite_texts(run: RunDir, launches: Collection[LaunchKey]) -> list[str]:
    """ "NaN first in replay 731 of the CUDA graph that captured call 1: 1.3 divide buf4", for each call and value."""
    first: dict[tuple[int, str], FirstReplay] = {}
    for seen in first_replays(run):
        if seen.launch in launches:
            first.setdefault((seen.launch.call, str(seen.value)), seen)
    return [
        f"{_SPECIALS[value]} first in {wording.replay_of(seen.replay, call)}: "
        f"{seen.launch} {seen.kernel} {seen.argument}"
        for (call, value), seen in first.items()
    ]


def _call_text(call: ModelCall, launches: Sequence[Launch]) -> str:
    measured = sorted({replay for launch in launches for replay in launch.replays})
    last = call.replays or 0
    kept = "earlier replays are not kept"
    if measured in ([], [last]):
        return f"{_of_replay(last, call)}, the last one; {kept}"
    if measured[-1] == last:
        older = wording.comma_separated(str(replay) for replay in measured[:-1])
        unfinished = f"or of replay {older} where it had not measured a tensor when the run ended"
        return f"{_of_replay(last, call)}, the last one, {unfinished}; {kept}"
    shown = wording.comma_separated(str(replay) for replay in measured)
    return f"{_of_replay(shown, call)}; replay {last}, the last one, had measured none of them when the run ended"


def _of_replay(replay: int | str, call: ModelCall | int) -> str:
    return f"statistics of {wording.replay_of(replay, str(call))}"
