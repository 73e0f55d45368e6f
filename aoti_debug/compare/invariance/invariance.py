"""Runs one sample alone and among others, and finds the launches in which its bits begin to differ.

aoti-debug/diffs/20261120-231501-4711/
  model.pt2  inputs/ b/   the package, the inputs of each run, and the runs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.base.machine.user_code import UserCode
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
from aoti_debug.compare.invariance.varied_inputs import (
    BATCH,
    Others,
    SampleSurroundings,
    VariedSize,
    bounds_error,
    inputs_of,
    masks_of,
    require_masks,
    require_sample,
    varied_size,
)
from aoti_debug.compare.what_if.substituted_run import Instruction, run_substituted
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.package.inputs import input_files, random_inputs
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.manifest import Site
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.runs.diagnosis.diagnosed_run import require_end
from aoti_debug.runs.run.options import check_inputs, recording_everything
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir.timeline import Launch

SIZES = (1, 4, 16)
_RUNS = "b"  # where other commands look for the run of such a directory


@dataclass(frozen=True, kw_only=True)
class InvarianceOptions:
    """A model with a size that is not fixed, and the surroundings that a sample is given.

    Attributes:
        model: an exported program, a compiled or an instrumented package.
        dim: the size that varies (`varied_size`).
        sizes: the values of it, from the smallest; the sample is alone in the smallest one.
        sample: the rows of the sample in the inputs; None for the first row, or along another dimension than the first
            of an input as many rows as the smallest size.
        others: what the inputs hold beside the sample.
        inputs: a .pt or .safetensors file; None for those embedded in the program or the package.
        random_inputs: a seed: random inputs that fit the model; None for none.
        inductor_configs: settings of torch._inductor.config for the build.
        out: the directory in which the directory of the runs is made.
        user_code: as for `build` and `run`.
    """

    model: Path
    dim: str = BATCH
    sizes: tuple[int, ...] = SIZES
    sample: range | None = None
    others: Others = Others.GIVEN
    inputs: Path | None = None
    random_inputs: int | None = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    out: Path = field(default_factory=ResultKind.DIFFS.place)
    user_code: UserCode = UserCode()


@dataclass(frozen=True)
class VaryingLaunch:
    """A launch in which the sample's bits begin to differ, or of which that is not known.

    Attributes:
        relation: the first of its relations that is not SAME.
        rows: in each run in which it has this relation.
    """

    relation: LaunchRelation
    rows: tuple[tuple[SampleRun, LaunchRows], ...]

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

    @property
    def begin_sites(self) -> tuple[Site, ...]:
        """The sites of launches in which the sample's bits begin to differ."""
        return tuple(item.first.launch.site for item in (*self.begins, *(self.own or ())))

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

        There are several runs of these sizes: other places, other values beside it.
        """
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
        return not self.unknown and not unknown

    @property
    def verdict(self) -> str:
        """The last line: whether the sample's bits depend on what it is computed with."""
        tried = f"{wording.pluralize(len(self.runs), 'run')} of the sample among others"
        if self.begins:
            first = self.begins[0].first
            more = f", and {len(self.begins) - 1} more" if len(self.begins) > 1 else ""
            return f"VARIES from {first.launch.id} {first.launch.kernel} on{more}"
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


def invariance(options: InvarianceOptions, listener: StepListener | None = None) -> Invariance:
    """Runs a sample alone and among others.

    Raises:
        ModelFaultError: the model does not end well.
        UsageError: an option is wrong, or the model has no such size.
        ArtifactError: the model or its inputs are not what they should be.
        ToolchainError, TargetError: the model could not be built or started.
        RunDirError: a run cannot be read.
    """
    check_inputs(options.inputs, options.random_inputs)
    sizes = tuple(sorted(set(options.sizes)))
    if len(sizes) < 2:
        raise UsageError("one size is nothing to compare", hint="--sizes 1,4,16")
    forking = python_process.forking_from(PRELOADED, options.user_code.imports)
    with stamped_directories.new_folder(options.out, _RUNS) as folder, forking as server:
        server.preload()
        return _Samples(options, sizes, folder, Steps(listener)).compare()


class _Samples:
    def __init__(self, options: InvarianceOptions, sizes: Sequence[int], folder: Path, steps: Steps) -> None:
        self._options = options
        self._folder = folder
        self._steps = steps
        building = BuildOptions(
            program=options.model,
            output=folder / options.model.name,
            user_code=options.user_code,
            inductor_configs=options.inductor_configs,
        )
        has_inputs = options.inputs is not None or options.random_inputs is not None
        self._package = instrumented(options.model, building, steps, has_inputs=has_inputs)
        artifact = archive.inspect(self._package)
        self._varied = varied_size(input_files.read_signature(artifact), options.dim)
        for size in sizes:
            if reason := bounds_error(self._varied, size):
                raise UsageError(reason, hint="--sizes takes sizes that the model was exported for")
        self._sizes = sizes
        self._sample = options.sample or range(1 if self._varied.is_batch else sizes[0])
        if len(self._sample) > sizes[0]:
            raise UsageError(
                f"the sample has {len(self._sample)} rows, and the smallest size is {sizes[0]}",
                hint="--sample FIRST:END names as many rows as the smallest of --sizes, or fewer",
            )
        self._given = self._inputs(artifact)
        require_sample(self._given, self._varied, self._sample)
        if options.others is Others.MASKED:
            require_masks(self._given, self._varied)

    def _inputs(self, package: Artifact) -> Inputs:
        signature = input_files.read_signature(package)
        if self._options.inputs is not None:
            return input_files.read(self._options.inputs, signature)
        if self._options.random_inputs is not None:
            return random_inputs.make(signature, package.manifest(), self._options.random_inputs)
        embedded = input_files.read_embedded(package)
        if embedded is None:
            raise input_files.missing_inputs_error(str(self._options.model), signature)
        return embedded

    def compare(self) -> Invariance:
        others, width = self._options.others, len(self._sample)
        alone = self._run("alone", SampleSurroundings(self._sizes[0], 0, others))
        runs = [self._run(f"size {size}", SampleSurroundings(size, 0, others)) for size in self._sizes[1:]]
        largest = runs[-1]
        size = largest.surroundings.size
        control = self._run(f"size {size}, other values", SampleSurroundings(size, 0, self._other_than(others)))
        if self._varied.is_batch:
            last = size - width
            runs.append(self._run(f"size {size}, place {last}", SampleSurroundings(size, last, others)))
        again = self._run(f"size {size} again", largest.surroundings)
        comparison = SampleComparison(alone, largest, control, again.run)
        with self._steps.step("compare") as note:
            place = RunPlace(self._varied, self._package, self._folder)
            found = collected(comparison, alone, (*runs, control), place)
            note.text = f"{wording.pluralize(found.launches, 'launch')}"
        return replace(found, own=self._own(found, comparison)) if found.begins and found.follows else found

    def _other_than(self, others: Others) -> Others:
        """Other values beside the sample; padding stays masked."""
        if others is Others.ZEROS and masks_of(self._given, self._varied):
            return Others.MASKED
        return Others.ZEROS if others in (Others.DRAWN, Others.MASKED) else Others.DRAWN

    def _own(self, found: Invariance, comparison: SampleComparison) -> tuple[VaryingLaunch, ...]:
        """The launches that write other bits when all that they read has the bits of the sample alone."""
        run = found.begins[-1].rows[-1][0]
        instructions = comparison.healed(run, self._folder / "healed")
        healed = self._run(f"{run.surroundings.text} with the bits of the sample alone", run.surroundings, instructions)
        known = {item.first.alone.key for item in found.begins}
        return tuple(
            VaryingLaunch(LaunchRelation.BEGINS, ((healed, rows),))
            for rows in in_order(comparison.launches(healed))
            if rows.relation is LaunchRelation.BEGINS and rows.alone.key not in known
        )

    def _run(self, name: str, surroundings: SampleSurroundings, instructions: Sequence[Instruction] = ()) -> SampleRun:
        """A run in which the sample has these surroundings.

        Raises:
            ModelFaultError: the model does not end well.
        """
        file = self._folder / "inputs" / f"{name.replace(', ', '_').replace(' ', '_')}.pt"
        file.parent.mkdir(exist_ok=True)
        input_files.write(inputs_of(self._given, self._varied, self._sample, surroundings), file)
        with self._steps.step(f"run {name}") as note:
            options = replace(
                recording_everything(self._package, self._folder / _RUNS),
                inputs=file,
                level=1,
                phase="both",
                user_code=self._options.user_code,
                built_from=self._options.model.name,
            )
            found = run_substituted(options, instructions, self._folder / "runs" / file.stem)
            note.text = found.summary or wording.pluralize(len(found.run.launches), "launch")
        require_end(found.run, self._options.model, name)
        return SampleRun(surroundings=surroundings, run=found.run, outputs=found.outputs, width=len(self._sample))


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
