"""All that can be said of a run of ranks beyond each rank alone: who failed first, who waits, where sequences part.

They are the weights of equal names and sizes, unless a pattern says that they are sharded; the results of collectives
of all ranks that are equal on every rank; and the arguments that a pattern of the user names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase

from aoti_debug.base.abi import CallKind, Phase, SaveStatus
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest, Role
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name
from aoti_debug.runs.ranks.first_failure import Clocks, RankFailure, clocks_of, first_failure
from aoti_debug.runs.ranks.ranks_run import End, RankRun, RanksRun, gives_equal_results, is_of_all_ranks, waits
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_Sequence = tuple[str, ...]  # kernels in the order of the call


class AgreementReason(str, Enum):
    """The reason why a tensor should be equal on all ranks."""

    WEIGHT = "weight"
    COLLECTIVE = "result of a collective"
    NAMED = "tensor that --agree names"


@dataclass(frozen=True)
class Expectation:
    """The tensors that should agree.

    Attributes:
        agree: patterns of arguments: "buf7", "KERNEL:buf7".
        sharded: patterns of weights that every rank has its own part of.
    """

    agree: tuple[str, ...] = ()
    sharded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Disagreement:
    """A tensor that is not equal on all ranks.

    Attributes:
        name: of the weight, or of the argument.
        launch: the first launch in which it differs; id and kernel.
        groups: numbers of the ranks that have equal bytes; the largest group first.
        times: how many launches it differs in.
    """

    subject: AgreementReason
    name: str
    launch: str
    groups: tuple[tuple[int, ...], ...]
    times: int = 1

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks that are not in the largest group; none if no group is the largest."""
        first, second = self.groups[0], self.groups[1]
        if len(first) == len(second):
            return ()
        return tuple(sorted(number for group in self.groups[1:] for number in group))


@dataclass(frozen=True)
class Agreement:
    """The tensors of a run of ranks that should be equal.

    Attributes:
        compared: the number of tensors that at least two ranks recorded.
        disagreements: weights first, then in the order of launches.
        sharded: names of weights that have another size on each rank, which are not compared.
    """

    compared: int
    disagreements: tuple[Disagreement, ...]
    sharded: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Recorded:
    subject: AgreementReason
    name: str
    launch: Launch
    shape: tuple[int, ...] | None
    hash: tuple[int, ...]
    replay: int = 0  # of a CUDA graph

    @property
    def place(self) -> tuple[int, ...]:
        """The launch, and its replay: those of other replays may differ."""
        return self.launch.key.call, self.launch.key.launch, self.replay


_Key = tuple[AgreementReason, str, tuple[int, ...]]  # the place too, except of a weight


def agreement(ranks: Sequence[RankRun], expected: Expectation) -> Agreement:
    """Compares the recorded tensors that should agree; only ranks of one program with each other.

    Args:
        ranks: those that left a run.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    compared = 0
    found: dict[tuple[AgreementReason, str], Disagreement] = {}
    sharded: dict[str, None] = {}
    for program in dict.fromkeys(rank.program for rank in ranks):
        tensors: dict[_Key, dict[int, _Recorded]] = {}
        for rank in ranks:
            if rank.program == program and rank.diagnosed is not None:
                for key, recorded in _recorded(rank.diagnosed.run, expected):
                    tensors.setdefault(key, {}).setdefault(rank.number, recorded)
        for (subject, name, _), of_rank in sorted(tensors.items(), key=lambda item: item[0][2]):
            if len(of_rank) < 2:
                continue
            if subject is AgreementReason.WEIGHT and len({recorded.shape for recorded in of_rank.values()}) > 1:
                sharded[name] = None
                continue
            compared += 1
            groups = _groups(of_rank)
            if len(groups) > 1:
                known = found.get((subject, name))
                found[subject, name] = _again(known) if known else _disagreement(subject, name, of_rank, groups)
    ordered = sorted(found.values(), key=lambda item: item.subject is not AgreementReason.WEIGHT)
    return Agreement(compared, tuple(ordered), tuple(sharded))


def unmatched(ranks: Sequence[RankRun], expected: Expectation) -> Expectation:
    """The patterns that match no argument, and no weight, of any rank."""
    manifests = [rank.diagnosed.run.manifest for rank in ranks if rank.diagnosed is not None]
    arguments = {(site.kernel, argument.name) for each in manifests for site in each.sites for argument in site.args}
    words = {word for kernel, name in arguments for word in (name, f"{kernel}:{name}")}
    weights = {name for each in manifests for name in _weights(each).values()}
    return Expectation(
        tuple(pattern for pattern in expected.agree if not any(_matches(word, (pattern,)) for word in words)),
        tuple(pattern for pattern in expected.sharded if not any(_matches(name, (pattern,)) for name in weights)),
    )


def _weights(manifest: Manifest) -> dict[str, str]:
    """The names of the weights in the exported program, by their own."""
    return {c.name: c.fqn or c.name for c in manifest.constants if not c.folded}


def _again(known: Disagreement) -> Disagreement:
    return Disagreement(known.subject, known.name, known.launch, known.groups, known.times + 1)


def _disagreement(
    subject: AgreementReason, name: str, of_rank: Mapping[int, _Recorded], groups: tuple[tuple[int, ...], ...]
) -> Disagreement:
    launch = next(iter(of_rank.values())).launch
    return Disagreement(subject, name, f"{launch.id} {launch.kernel}", groups)


def _groups(of_rank: Mapping[int, _Recorded]) -> tuple[tuple[int, ...], ...]:
    by_hash: dict[tuple[int, ...], list[int]] = {}
    for number, recorded in sorted(of_rank.items()):
        by_hash.setdefault(recorded.hash, []).append(number)
    return tuple(sorted((tuple(numbers) for numbers in by_hash.values()), key=lambda group: (-len(group), group)))


def _recorded(run: RunDir, expected: Expectation) -> Iterator[tuple[_Key, _Recorded]]:
    """Yields the tensors of a run that should agree, with what identifies them on all ranks."""
    weights = _weights(run.manifest)
    chosen = {name for name in weights.values() if not _matches(name, expected.sharded)}
    met: set[str] = set()
    for launch in run.launches:
        if launch.key.kind is not CallKind.MODEL:
            continue
        for argument in launch.args:
            name = input_or_weight_name(run.manifest, argument)
            if name in chosen and name not in met and argument.role is not Role.OUT:
                met.add(name)
                if recorded := _tensor(AgreementReason.WEIGHT, name, launch, argument, (Phase.BEFORE,)):
                    yield (AgreementReason.WEIGHT, name, ()), recorded
            if _matches(argument.name, expected.agree) or _matches(f"{launch.kernel}:{argument.name}", expected.agree):
                after = (Phase.AFTER,) if argument.written else ()
                phases = (*after, *((Phase.BEFORE,) if argument.has_data_before else ()))
                if recorded := _tensor(AgreementReason.NAMED, argument.name, launch, argument, phases):
                    yield (AgreementReason.NAMED, argument.name, recorded.place), recorded
    for first, launch in waits(run):
        if not gives_equal_results(first.site) or not is_of_all_ranks(first.site):
            continue
        for argument in launch.args:
            if recorded := _tensor(AgreementReason.COLLECTIVE, first.kernel, launch, argument, (Phase.AFTER,)):
                yield (AgreementReason.COLLECTIVE, first.kernel, recorded.place), recorded
                break


def _tensor(
    subject: AgreementReason, name: str, launch: Launch, argument: Argument, phases: Iterable[Phase]
) -> _Recorded | None:
    """A tensor with the hash of its bytes, row-major; None if the run has none of it."""
    shape = None if argument.layout is None else argument.layout.shape
    for phase in phases:
        saved, measured = argument.files.get(phase), argument.stats.get(phase)
        if saved is not None and saved.status is not SaveStatus.SKIPPED:
            return _Recorded(subject, name, launch, shape, saved.hash)
        if measured is not None and measured.hash is not None:
            return _Recorded(subject, name, launch, shape, (measured.hash,), measured.replay or 0)
    return None


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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
