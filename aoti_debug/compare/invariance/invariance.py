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
from aoti_debug.base.errors import ModelFaultError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.invariance.variance import Control, LaunchRelation, SampleComparison, SampleRun, in_order
from aoti_debug.compare.invariance.varied_inputs import (
    BATCH,
    Others,
    SampleSurroundings,
    bounds_error,
    inputs_of,
    masks_of,
    possible_sizes,
    require_masks,
    require_sample,
    varied_size,
)
from aoti_debug.compare.invariance.varying_launches import Invariance, RunPlace, VaryingLaunch, collected, with_reasons
from aoti_debug.compare.what_if.substituted_run import Instruction, run_substituted
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.package.inputs import input_files, random_inputs
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.runs.diagnosis.diagnosed_run import require_end
from aoti_debug.runs.run.options import check_inputs, recording_everything
from aoti_debug.runs.run.protocol import PRELOADED

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
        self._left_out: list[str] = []
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
                raise UsageError(reason, hint=f"--sizes {','.join(map(str, possible_sizes(self._varied, sizes)))}")
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
            raise input_files.missing_inputs_error(str(self._options.model), signature, ("--random-inputs", "0"))
        return embedded

    def compare(self) -> Invariance:
        others, width = self._options.others, len(self._sample)
        alone = self._run("alone", SampleSurroundings(self._sizes[0], 0, others))
        runs = [self._run(f"size {size}", SampleSurroundings(size, 0, others)) for size in self._sizes[1:]]
        largest = runs[-1]
        size = largest.surroundings.size
        name = f"size {size}, other values"
        controls = [Control(largest, self._tried(name, SampleSurroundings(size, 0, self._other_than(others))))]
        if self._varied.is_batch:
            place = size - width
            name = f"size {size}, place {place}"
            if last := self._tried(name, SampleSurroundings(size, place, others)):
                runs.append(last)
                small = SampleSurroundings(size, place, Others.DRAWN if others is Others.SMALL else Others.SMALL)
                controls.append(Control(last, self._tried(f"{name}, other values", small)))
        again = self._run(f"size {size} again", largest.surroundings)
        comparison = SampleComparison(alone, controls, again.run)
        with self._steps.step("compare") as note:
            where = RunPlace(self._varied, self._package, self._folder)
            runs += [control.other for control in controls if control.other is not None]
            found = replace(collected(comparison, alone, runs, where), notes=tuple(self._left_out))
            note.text = f"{wording.pluralize(found.launches, 'launch')}"
        if not found.begins:
            return found
        found = replace(found, begins=with_reasons(found.begins, alone, self._options.user_code, self._steps))
        return replace(found, own=self._own(found, comparison)) if found.follows else found

    def _tried(self, name: str, surroundings: SampleSurroundings) -> SampleRun | None:
        """A run with rows at other places or with other values, which the model may not be made for."""
        try:
            return self._run(name, surroundings)
        except ModelFaultError as error:
            self._left_out.append(surroundings.left_out(error))
            return None

    def _other_than(self, others: Others) -> Others:
        """Other values beside the sample; padding stays masked."""
        if others is Others.ZEROS and masks_of(self._given, self._varied):
            return Others.MASKED
        return Others.DRAWN if others in (Others.GIVEN, Others.ZEROS) else Others.ZEROS

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
