"""Sentences on runs whose statistics are of replays of CUDA graphs: of which, where that is not one and the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind
from aoti_debug.runs.rundir.run_directory import RunDir


def replay_notes(a: RunDir, b: RunDir) -> Iterator[str]:
    """Yields a sentence for each captured call whose tensors are not all of the same replay, in one run or in both."""
    first, second = _replays(a), _replays(b)
    for side, replays in (("a", first), ("b", second)):
        for call, measured in replays.items():
            if len(measured) > 1:
                yield f"run {side}: the tensors of call {call} are of replays {_listed(measured)} of its CUDA graph"
    for call in sorted(first.keys() & second.keys()):
        if max(first[call]) != max(second[call]):
            yield (
                f"the tensors of call {call} are of replay {max(first[call])} of its CUDA graph in run a, "
                f"of replay {max(second[call])} in run b"
            )


def _replays(run: RunDir) -> dict[int, set[int]]:
    """The replays that have measured the tensors of each captured call."""
    captured = {call.call for call in run.timeline.calls if call.replays is not None and call.kind is CallKind.MODEL}
    found: dict[int, set[int]] = defaultdict(set)
    for launch in run.launches:
        if launch.key.kind is CallKind.MODEL and launch.key.call in captured and launch.replays:
            found[launch.key.call] |= launch.replays
    return dict(found)


def _listed(replays: set[int]) -> str:
    return wording.comma_separated(map(str, sorted(replays)))
