"""The replays of CUDA graphs that statistics belong to, as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from aoti_debug import wording
from aoti_debug.abi import CallKind
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Launch, ModelCall

_SHOWN = 6  # calls


def replay_fact(launch: Launch) -> str:
    """ "statistics of replay 731 of the CUDA graph"; "" if no replay measured the launch."""
    return "" if launch.replay is None else _of_replay(launch.replay)


def replay_lines(run: RunDir, launches: Sequence[Launch], width: int) -> list[str]:
    """A line for each captured call of some launches: the replay that its statistics are of, or that there are none."""
    by_call: dict[tuple[CallKind, int], list[Launch]] = defaultdict(list)
    for launch in launches:
        by_call[launch.key.kind, launch.key.call].append(launch)
    calls = [call for call in run.timeline.calls if call.replays is not None and (call.kind, call.call) in by_call]
    texts = [_call_text(call, by_call[call.kind, call.call]) for call in calls[:_SHOWN]]
    lines = [line for text in texts for line in wording.wrapped(text, width)]
    if len(calls) > _SHOWN:
        lines.append(f"and the last replays of {wording.count(len(calls) - _SHOWN, 'more call')}")
    return lines


def _call_text(call: ModelCall, launches: Sequence[Launch]) -> str:
    measured = sorted({replay for launch in launches for replay in launch.replays})
    last = call.replays or 0
    kept = "earlier replays are not kept"
    if measured in ([], [last]):
        return f"call {call}: {_of_replay(last)}, the last one; {kept}"
    if measured[-1] == last:
        older = wording.comma_separated(str(replay) for replay in measured[:-1])
        unfinished = f"or of replay {older} where it had not measured a tensor when the run ended"
        return f"call {call}: {_of_replay(last)}, the last one, {unfinished}; {kept}"
    shown = wording.comma_separated(str(replay) for replay in measured)
    return (
        f"call {call}: {_of_replay(shown)}; replay {last}, the last one, had measured none of them when the run ended"
    )


def _of_replay(replay: int | str) -> str:
    return f"statistics of replay {replay} of the CUDA graph"
