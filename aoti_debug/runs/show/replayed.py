"""The replays of CUDA graphs that statistics belong to, and the first ones with NaN or infinities, as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.nonfinite_replays import FirstReplay, first_replays
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch, ModelCall

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
    calls = [call for call in run.timeline.calls if call.replays is not None and (call.kind, call.call) in by_call]
    texts = [_call_text(call, by_call[call.kind, call.call]) for call in calls[:_SHOWN]]
    lines = [line for text in texts for line in wording.wrapped(text, width)]
    if len(calls) > _SHOWN:
        lines.append(f"and the last replays of {wording.pluralize(len(calls) - _SHOWN, 'more call')}")
    ids = {launch.key for launch in launches}
    return lines + [line for text in _nonfinite_texts(run, ids)[:_SHOWN] for line in wording.wrapped(text, width)]


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
