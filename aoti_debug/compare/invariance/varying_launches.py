"""The launches in which a sample's bits begin to differ, gathered from several runs, and their causes in float64.

Both runs are compared with the program, each from what it had read; of the sample they had read the same bits. If what
is written differs by more than both sides are away from float64, the program has other values there in float64 as well:
it computes with the size, the place or the other rows. If not, rounding suffices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.machine.user_directories import scratch_directory
from aoti_debug.compare.compare_run import Scope, compare_run
from aoti_debug.compare.diff.repeated_calls import draws_numbers
from aoti_debug.compare.invariance.sample_rows import RowsRelation
from aoti_debug.compare.invariance.variance import (
    LaunchRelation,
    LaunchRows,
    OutputRows,
    SampleComparison,
    SampleRun,
    groups_of,
    in_order,
)
from aoti_debug.compare.invariance.varied_inputs import VariedSize
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.package.manifest import Site
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_SLACK = 1 + 1e-6  # errors are measured in float64
_MOST = 32  # launches that are looked at
_ErrorsOf = Mapping[tuple[str, str], Measurement]


class BeginCause(str, Enum):
    """The cause for which a launch writes other bits for the sample, as far as float64 shows it."""

    ROUNDING = "rounding"  # what it wrote differs by no more than both are away from float64
    PROGRAM = "program"  # it differs by more: in float64 the program computes other values there as well
    RANDOM = "random numbers"  # it draws some


@dataclass(frozen=True)
class BeginReason:
    """The cause of a launch, with the numbers that show it.

    Attributes:
        evidence: "buf0 differs by 0.3, where the errors are 1e-07 and 2e-07"; "" without any.
    """

    cause: BeginCause
    evidence: str = ""


@dataclass(frozen=True)
class VaryingLaunch:
    """A launch in which the sample's bits begin to differ, or of which that is not known.

    Attributes:
        relation: the first of its relations that is not SAME.
        rows: in each run in which it has this relation.
        reason: of one that BEGINS; None if it is not known.
    """

    relation: LaunchRelation
    rows: tuple[tuple[SampleRun, LaunchRows], ...]
    reason: BeginReason | None = None

    @property
    def first(self) -> LaunchRows:
        """The launch in the first of these runs."""
        return self.rows[0][1]


@dataclass(frozen=True)
class LaunchInRuns:
    """A launch of the sample alone, and its relations to the same launch in each of the other runs, in their order."""

    launch: Launch
    relations: tuple[LaunchRelation, ...]


@dataclass(frozen=True, kw_only=True)
class Invariance:
    """The sample's bits alone and among others.

    Attributes:
        varied: the size that varies.
        alone: the run of the sample alone.
        runs: of the sample among others.
        launches: how many launches were compared.
        begins, mixes, unrepeatable, unknown: launches with these relations, in order.
        own: launches that read other bits, and would begin of their own: given the bits that the sample has alone, they
            write others; None if that was not looked at.
        equal_runs: the runs, and the run alone, in groups in which all outputs have the same bits for the sample; () if
            that is not known of one of them.
        follows, absorbs: how many others read other bits of the sample, and wrote other or the same ones.
        same: how many have the same bits of the sample in every run.
        relations: of every launch, in each of the runs.
        outputs: those that differ in a run, or of which that is not known, by run.
        notes: runs that were left out, with the reason.
        package: that was run.
        directory: with the runs.
    """

    varied: VariedSize
    alone: SampleRun
    runs: tuple[SampleRun, ...]
    launches: int
    begins: tuple[VaryingLaunch, ...]
    mixes: tuple[VaryingLaunch, ...]
    unrepeatable: tuple[VaryingLaunch, ...]
    unknown: tuple[VaryingLaunch, ...]
    own: tuple[VaryingLaunch, ...] | None
    equal_runs: tuple[tuple[SampleRun, ...], ...]
    follows: int
    absorbs: int
    same: int
    relations: tuple[LaunchInRuns, ...]
    outputs: tuple[tuple[SampleRun, tuple[OutputRows, ...]], ...]
    package: Path
    directory: Path
    notes: tuple[str, ...] = ()

    @property
    def begin_sites(self) -> tuple[Site, ...]:
        """The sites of launches in which the sample's bits begin to differ, without those that have to differ."""
        own_values = (BeginCause.PROGRAM, BeginCause.RANDOM)
        begins = (item for item in self.begins if item.reason is None or item.reason.cause not in own_values)
        return tuple(item.first.launch.site for item in (*begins, *(self.own or ())))

    @property
    def differing_outputs(self) -> tuple[tuple[SampleRun, OutputRows], ...]:
        """The outputs that have other bits for the sample."""
        differs = (RowsRelation.DIFFERENT, RowsRelation.MIXED)
        return tuple(
            (run, output)
            for run, outputs in self.outputs
            for output in outputs
            if output.tensor.rows.relation in differs
        )

    @property
    def enough(self) -> tuple[SampleRun, ...]:
        """The runs of the smallest size from which on the sample has the same bits in every run; () without one.

        There are several runs of these sizes: other places, other values beside it. None is enough for a program that
        computes other values in float64 as well.
        """
        if any(item.reason is not None and item.reason.cause is BeginCause.PROGRAM for item in self.begins):
            return ()
        for group in self.equal_runs:
            least = min(run.surroundings.size for run in group)
            larger = [run for run in self.runs if run.surroundings.size >= least]
            if len(group) > 1 and least > self.alone.surroundings.size and all(run in group for run in larger):
                return tuple(larger)
        return ()

    @property
    def is_finding(self) -> bool:
        """True if a launch or an output has other bits for the sample."""
        return bool(self.begins or self.mixes or self.unrepeatable or self.differing_outputs)

    @property
    def is_complete(self) -> bool:
        """True if it is known of every launch and every output."""
        unknown = any(
            output.tensor.rows.relation is RowsRelation.UNKNOWN for _, outputs in self.outputs for output in outputs
        )
        return not self.unknown and not unknown and not self.notes

    @property
    def verdict(self) -> str:
        """The last line: whether the sample's bits depend on what it is computed with."""
        tried = f"{wording.pluralize(len(self.runs), 'run')} of the sample among others"
        if self.begins:
            first = self.begins[0].first
            more = f", and {len(self.begins) - 1} more" if len(self.begins) > 1 else ""
            why = self.begins[0].reason
            mixes = f"; MIXES SAMPLES in {self.mixes[0].first.launch.id}" if self.mixes else ""
            of_program = ": the program computes other values there" if why and why.cause is BeginCause.PROGRAM else ""
            return f"VARIES from {first.launch.id} {first.launch.kernel} on{more}{of_program}{mixes}"
        if self.mixes:
            first = self.mixes[0].first
            return f"MIXES SAMPLES in {first.launch.id} {first.launch.kernel}: the values of other rows change it"
        if self.unrepeatable:
            first = self.unrepeatable[0].first
            return f"NOT REPEATABLE in {first.launch.id} {first.launch.kernel}: aoti-debug run --repeat says more"
        if self.differing_outputs:
            return "VARIES, and no launch is known to be the first"
        if not self.is_complete:
            return f"INVARIANT as far as it is known, in {tried}"
        return f"INVARIANT in {tried}: the same bits in {wording.pluralize(self.launches, 'launch')}"


@dataclass(frozen=True)
class RunPlace:
    """The package that was run, and the place of the runs.

    Attributes:
        varied: the size that varies.
        package: that was run.
        directory: with the runs.
    """

    varied: VariedSize
    package: Path
    directory: Path


def collected(comparison: SampleComparison, alone: SampleRun, runs: Sequence[SampleRun], place: RunPlace) -> Invariance:
    """The sample's bits in several runs, against those of the run alone.

    Raises:
        RunDirError: a tensor is damaged.
    """
    by_launch: dict[str, dict[LaunchRelation, list[tuple[SampleRun, LaunchRows]]]] = {}
    by_run: dict[tuple[int, str], LaunchRelation] = {}
    launches: dict[str, Launch] = {}
    for number, run in enumerate(runs):
        for rows in in_order(comparison.launches(run)):
            by_run[number, rows.alone.id] = rows.relation
            launches[rows.alone.id] = rows.alone
            by_launch.setdefault(rows.alone.id, {}).setdefault(rows.relation, []).append((run, rows))

    def of(relation: LaunchRelation) -> tuple[VaryingLaunch, ...]:
        found = (relations.get(relation) for relations in by_launch.values())
        return tuple(VaryingLaunch(relation, tuple(rows)) for rows in found if rows)

    def only(*relations: LaunchRelation) -> int:
        """How many launches have the last of these relations, and no other ones."""
        return sum(relations[-1] in found and set(found) <= set(relations) for found in by_launch.values())

    return Invariance(
        varied=place.varied,
        alone=alone,
        runs=tuple(runs),
        launches=len(by_launch),
        begins=of(LaunchRelation.BEGINS),
        mixes=of(LaunchRelation.MIXES),
        unrepeatable=of(LaunchRelation.UNREPEATABLE),
        unknown=of(LaunchRelation.UNKNOWN),
        own=None,
        equal_runs=groups_of((alone, *runs), comparison),
        follows=only(LaunchRelation.SAME, LaunchRelation.ABSORBS, LaunchRelation.FOLLOWS),
        absorbs=only(LaunchRelation.SAME, LaunchRelation.ABSORBS),
        same=only(LaunchRelation.SAME),
        relations=tuple(
            LaunchInRuns(launch, tuple(by_run.get((n, id_), LaunchRelation.UNKNOWN) for n in range(len(runs))))
            for id_, launch in launches.items()
        ),
        outputs=tuple((run, comparison.outputs(run)) for run in runs),
        package=place.package,
        directory=place.directory,
    )


def with_reasons(
    begins: Sequence[VaryingLaunch], alone: SampleRun, user_code: UserCode, steps: Steps
) -> tuple[VaryingLaunch, ...]:
    """The launches, with the causes that float64 shows; without them where it cannot be asked."""
    asked = [item for item in begins[:_MOST] if not draws_numbers(item.first.alone.site, alone.run)]
    runs = {item.rows[0][0].run.path: item.rows[0][0].run for item in asked}
    errors: dict[Path, _ErrorsOf] = {}
    with scratch_directory() as folder, steps.step("evaluate in float64") as note:
        try:
            ids = frozenset(item.first.alone.id for item in asked)
            errors[alone.run.path] = _errors(alone.run, ids, user_code, folder / "alone")
            for number, (path, run) in enumerate(runs.items()):
                ids = frozenset(item.first.launch.id for item in asked if item.rows[0][0].run.path == path)
                errors[path] = _errors(run, ids, user_code, folder / str(number))
        except AotiDebugError as error:
            note.text = wording.first_line(str(error))
        else:
            note.text = wording.pluralize(len(asked), "launch")
    return tuple(replace(item, reason=_reason(item, alone.run, errors)) for item in begins)


def _errors(run: RunDir, launches: frozenset[str], user_code: UserCode, folder: Path) -> _ErrorsOf:
    """The errors of what launches wrote, by launch and argument; of those that are not wrong.

    Raises:
        AotiDebugError: the run cannot be compared with its program.
    """
    if not launches:
        return {}
    folder.mkdir()
    code = user_code.after(run.info.imports, run.info.libraries)
    rows = compare_run(run, Scope(launches=launches, inherited=False, user_code=code), folder, Steps(None)).rows
    judged = (row for row in rows if row.verdict not in (LaunchVerdict.NOT_COMPARABLE, LaunchVerdict.WRONG))
    return {(row.launch.id, output.argument): output for row in judged for output in row.outputs}


def _reason(item: VaryingLaunch, alone: RunDir, errors: Mapping[Path, _ErrorsOf]) -> BeginReason | None:
    rows, path = item.first, item.rows[0][0].run.path
    if draws_numbers(rows.alone.site, alone):
        return BeginReason(BeginCause.RANDOM)
    known = []
    for tensor in rows.differing:
        first = errors.get(alone.path, {}).get((rows.alone.id, tensor.name))
        second = errors.get(path, {}).get((rows.launch.id, tensor.name))
        largest = None if tensor.rows.elements is None else tensor.rows.elements.max_absolute
        if first is None or second is None or largest is None or not math.isfinite(largest):
            continue
        sizes = [wording.number(side.atol) for side in (first, second)]
        evidence = (
            f"{tensor.name} differs by {wording.number(largest)}, with errors of {sizes[0]} alone and {sizes[1]} here"
        )
        if largest > (first.atol + second.atol) * _SLACK:
            return BeginReason(BeginCause.PROGRAM, evidence)
        known.append(evidence)
    return BeginReason(BeginCause.ROUNDING, known[0]) if len(known) == len(rows.differing) else None
