"""The replays of CUDA graphs that statistics belong to, as text."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug import wording
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Launch, ModelCall

_SHOWN = 6  # calls


def replay_fact(launch: Launch) -> str:
    """ "statistics of replay 731 of the CUDA graph"; "" if no replay measured the launch."""
    return "" if launch.replay is None else _of_replay(launch.replay)


def replay_lines(run: RunDir, launches: Sequence[Launch], width: int) -> list[str]:
    """A line for each captured call of some launches: the replay that its statistics are of, or that there are none."""
    called = {(launch.key.kind, launch.key.call) for launch in launches}
    calls = [call for call in run.timeline.calls if call.replays is not None and (call.kind, call.call) in called]
    lines = [line for call in calls[:_SHOWN] for line in wording.wrapped(_call_text(call), width)]
    if len(calls) > _SHOWN:
        lines.append(f"and the last replays of {wording.count(len(calls) - _SHOWN, 'more call')}")
    return lines


def _call_text(call: ModelCall) -> str:
    return f"call {call}: {_of_replay(call.replays or 0)}, the last one; earlier replays are not kept"


def _of_replay(replay: int) -> str:
    return f"statistics of replay {replay} of the CUDA graph"
