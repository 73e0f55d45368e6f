"""All that can be said of a run of ranks beyond each rank alone: who failed first, who waits, where sequences part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from aoti_debug.base.abi import CallKind
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.ranks.agreement import Agreement, Expectation, agreement
from aoti_debug.runs.ranks.clocks import Clocks, clocks_of
from aoti_debug.runs.ranks.first_failure import RankFailure, first_failure
from aoti_debug.runs.ranks.ranks_run import End, RankRun, RanksRun
from aoti_debug.runs.rundir.launch import Launch

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


@dataclass(frozen=True)
class Waiting:
    """Ranks that wait in the same launch.

    Attributes:
        launch: a collective.
        ranks: numbers of those that wait in it.
        missing: numbers of the ranks of the same program that have not begun it, and of those without a run.
    """

    launch: Launch
    ranks: tuple[int, ...]
    missing: tuple[int, ...]


def waiting(ranks: Sequence[RankRun]) -> tuple[Waiting, ...]:
    """The ranks that were within a collective when they ended, or are, by launch.

    Args:
        ranks: all of them.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    waits: dict[tuple[str, str], list[RankRun]] = {}
    for rank in ranks:
        progress = rank.progress
        if progress.current is not None and progress.is_in_collective and progress.end is not End.FINISHED:
            waits.setdefault((rank.program, progress.current.id), []).append(rank)
    found = []
    for (program, _), members in waits.items():
        launch = members[0].progress.current
        assert launch is not None
        place = (launch.key.call, launch.key.launch, 0)
        missing = tuple(r.number for r in ranks if r.program in (program, "") and r.progress.position < place)
        found.append(Waiting(launch, tuple(rank.number for rank in members), missing))
    return tuple(found)


@dataclass(frozen=True)
class RanksAnalysis:
    """A run of ranks with its analysis.

    Attributes:
        failure: the rank that failed first; None if none has.
        waits: the ranks that waited within a collective.
        partings: ranks that launched something else than most others.
        agreement: of the tensors that should be equal on all ranks.
    """

    run: RanksRun
    clocks: Clocks
    failure: RankFailure | None
    waits: tuple[Waiting, ...]
    partings: tuple[Parting, ...]
    agreement: Agreement

    @property
    def has_finding(self) -> bool:
        """True if a rank failed, or tensors that should agree do not."""
        return self.failure is not None or bool(self.agreement.disagreements)


def analyse(run: RanksRun, expected: Expectation | None = None) -> RanksAnalysis:
    """Analyses a run of ranks.

    Args:
        expected: the tensors that should agree; None for those that their names and the program suggest.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    ranks = run.recorded
    clocks = clocks_of(ranks)
    return RanksAnalysis(
        run,
        clocks,
        first_failure(run.ranks, clocks),
        waiting(run.ranks),
        partings(ranks),
        agreement(ranks, expected or Expectation()),
    )


def representative(run: RanksRun) -> RankRun:
    """The rank that stands for a run of ranks where only one can be shown: the first that failed, or the first one.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    return shown_rank(run, first_failure(run.ranks, clocks_of(run.recorded)))


def shown_rank(run: RanksRun, failure: RankFailure | None) -> RankRun:
    """The rank that failed first, or the first one if none has, or it left no run."""
    return run.recorded[0] if failure is None or failure.rank.diagnosed is None else failure.rank
