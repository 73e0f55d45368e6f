"""Tensors that should be equal on all ranks, grouped by hash: who is the odd one.

They are the weights of equal names and sizes, unless a pattern says that they are sharded; the results of collectives
of all ranks that are equal on every rank; and the arguments that a pattern of the user names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase

from aoti_debug.base.abi import CallKind, Phase, SaveStatus
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest, Role
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name
from aoti_debug.runs.ranks.collectives import gives_equal_results, is_of_all_ranks, waits
from aoti_debug.runs.ranks.ranks_run import RankRun
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir


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
