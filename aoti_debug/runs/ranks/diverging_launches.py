"""Launches that other ranks have and one has not: where the sequences of ranks of one program part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from aoti_debug.base.abi import CallKind
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.ranks.ranks_run import RankRun

_Sequence = tuple[str, ...]  # kernels in the order of the call


@dataclass(frozen=True)
class Parting:
    """A call in which a rank launched something else than most of the others.

    Attributes:
        rank: its number.
        call: the first such call of the model.
        launch: the place in the call, from 0, at which the sequences part.
        missing: kernels, with how often, that most of the others launched from there on and this rank did not.
        extra: kernels that it launched and they did not.
        like: numbers of the ranks that it is compared with.
    """

    rank: int
    call: int
    launch: int
    missing: Mapping[str, int]
    extra: Mapping[str, int]
    like: tuple[int, ...]


def partings(ranks: Sequence[RankRun]) -> tuple[Parting, ...]:
    """The first call of each rank whose launches are not those of most ranks; only calls that ended are compared.

    Args:
        ranks: those that left a run; ranks of other programs are not compared with each other.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    found: dict[int, Parting] = {}
    for program in dict.fromkeys(rank.program for rank in ranks):
        calls = {rank.number: _ended_calls(rank) for rank in ranks if rank.program == program}
        for call in sorted({call for sequences in calls.values() for call in sequences}):
            launched = {number: sequences[call] for number, sequences in calls.items() if call in sequences}
            for parting in _in_call(call, launched):
                found.setdefault(parting.rank, parting)
    return tuple(found[number] for number in sorted(found))


def _in_call(call: int, launched: Mapping[int, _Sequence]) -> list[Parting]:
    usual, count = Counter(launched.values()).most_common(1)[0]
    if 2 * count <= len(launched):
        return []  # no majority: control flow that depends on the rank's data
    like = tuple(sorted(number for number, sequence in launched.items() if sequence == usual))
    return [_parting(number, call, own, usual, like) for number, own in launched.items() if own != usual]


def _parting(number: int, call: int, own: _Sequence, usual: _Sequence, like: tuple[int, ...]) -> Parting:
    place = next((i for i, (a, b) in enumerate(zip(own, usual, strict=False)) if a != b), min(len(own), len(usual)))
    missing, extra = Counter(usual[place:]), Counter(own[place:])
    return Parting(number, call, place, dict(missing - extra), dict(extra - missing), like)


def _ended_calls(rank: RankRun) -> dict[int, _Sequence]:
    run = None if rank.diagnosed is None else rank.diagnosed.run
    if run is None:
        return {}
    ended = {call.call for call in run.timeline.calls if call.kind is CallKind.MODEL and call.ended and not call.failed}
    sequences: dict[int, list[str]] = {call: [] for call in ended}
    for launch in run.launches:
        if launch.key.kind is CallKind.MODEL and launch.key.call in ended:
            sequences[launch.key.call].append(launch.kernel)
    return {call: tuple(kernels) for call, kernels in sequences.items()}
