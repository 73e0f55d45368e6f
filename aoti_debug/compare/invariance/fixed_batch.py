"""A sample in models whose batch is fixed: at other places, among other values, and in a package for each size.

Buffers of one size do not show which of their elements are the sample's, so only rows of outputs are compared.

aoti-debug/diffs/20261120-231501-4711/
  0.pt2  1.pt2  inputs/ b/   a package for each size, the inputs of each run, and the runs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, ModelFaultError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.diff.element_difference import ElementDifference, element_difference
from aoti_debug.compare.invariance.sample_rows import RowMap, SplitAxis, sample_of
from aoti_debug.compare.invariance.variance import SampleRun
from aoti_debug.compare.invariance.varied_inputs import (
    InputAxis,
    Others,
    SampleSurroundings,
    VariedSize,
    export_hint,
    inputs_of,
    require_sample,
)
from aoti_debug.compare.what_if.substituted_run import run_substituted
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.package.inputs import input_files, random_inputs
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.inputs.signature import Dim, ModelSignature
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.diagnosed_run import require_end
from aoti_debug.runs.run.options import check_inputs, recording_everything
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir.formats.stored_tensor import layout_of, open_tensor

FORMAT = 1
_RUNS = "b"
_PLACE, _ROWS, _SIZE, _AGAIN = "place", "other rows", "size", "again"


@dataclass(frozen=True, kw_only=True)
class FixedBatchOptions:
    """Models of one program whose batch is fixed: one, or one for each size.

    Attributes:
        models: exported programs, compiled or instrumented packages.
        sample: the row of the inputs that is the sample.
        inputs: a .pt or .safetensors file, of the largest size; None for those embedded in the model of that size.
        random_inputs: a seed: random inputs that fit that model; None for none.
        inductor_configs: settings of torch._inductor.config for the builds.
        out: the directory in which the directory of the runs is made.
        user_code: as for `build` and `run`.
    """

    models: tuple[Path, ...]
    sample: int = 0
    inputs: Path | None = None
    random_inputs: int | None = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    out: Path = field(default_factory=ResultKind.DIFFS.place)
    user_code: UserCode = UserCode()


@dataclass(frozen=True)
class FixedRun:
    """A run, and what it has otherwise than the run that it is compared with.

    Attributes:
        changed: "size", "place", "other rows", or "again" for nothing.
    """

    run: SampleRun
    changed: str


@dataclass(frozen=True)
class FixedOutput:
    """The rows of the sample in an output, against those in the run that it is compared with.

    Attributes:
        difference: None where they are equal, or not known.
        unknown: why it is not known; "" if it is.
    """

    index: int
    run: FixedRun
    difference: ElementDifference | None = None
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class FixedBatch:
    """The bits of a sample in models whose batch is fixed.

    Attributes:
        axis: "axis 0 of x".
        first: the run that those with other sizes are compared with: of the smallest size.
        runs: the others. Those of the largest size are compared with the run of that size, the sample first; the one
            with small numbers beside the sample at the last place with the one at that place.
        outputs: of each run.
        notes: runs that were left out, with the reason.
    """

    axis: str
    first: SampleRun
    runs: tuple[FixedRun, ...]
    outputs: tuple[FixedOutput, ...]
    directory: Path
    notes: tuple[str, ...] = ()

    def differing(self, changed: str) -> tuple[FixedOutput, ...]:
        """The outputs that differ in a run with such a change."""
        return tuple(one for one in self.outputs if one.run.changed == changed and one.difference is not None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes, each of a package of its own."""
        return tuple(sorted({self.first.surroundings.size, *(one.run.surroundings.size for one in self.runs)}))

    @property
    def unknown(self) -> tuple[FixedOutput, ...]:
        """The outputs that could not be compared."""
        return tuple(one for one in self.outputs if one.unknown)

    @property
    def verdict(self) -> str:
        """The last line."""
        if self.differing(_AGAIN):
            return "NOT REPEATABLE: an output has other bits in a run with the same inputs"
        if self.differing(_ROWS):
            return "MIXES SAMPLES, or varies with them: the values of the other rows change the sample's outputs"
        if self.differing(_PLACE):
            return "VARIES with the place in the batch"
        if self.differing(_SIZE):
            return "VARIES from package to package: their sizes differ; kernels and algorithms may"
        if len(self.unknown) == len(self.outputs):
            return "NOTHING COMPARED: no output is known to have a row for each sample"
        known = "as far as it is known, " if self.unknown or self.notes else ""
        return f"SAME BITS {known}in the outputs of {wording.pluralize(len(self.runs), 'other run')}"

    @property
    def exit_code(self) -> int:
        """0: the same bits; 1: others; 8: the same as far as it is known."""
        if any(one.difference is not None for one in self.outputs):
            return EXIT_FINDING
        return EXIT_INCOMPLETE if self.unknown or self.notes or not self.outputs else EXIT_CLEAN


def fixed_batch(options: FixedBatchOptions, listener: StepListener | None = None) -> FixedBatch:
    """Runs a sample in each model, and in the largest one at other places and among other values.

    Raises:
        ModelFaultError: a model does not end well.
        UsageError: an option is wrong, or the batch of a model is not fixed.
        ArtifactError: a model or its inputs are not what they should be.
        ToolchainError, TargetError: a model could not be built or started.
        RunDirError: an output cannot be read.
    """
    check_inputs(options.inputs, options.random_inputs)
    forking = python_process.forking_from(PRELOADED, options.user_code.imports)
    with stamped_directories.new_folder(options.out, _RUNS) as folder, forking as server:
        server.preload()
        return _FixedRuns(options, folder, Steps(listener)).compare()


def fixed_size(signature: ModelSignature, model: Path) -> VariedSize:
    """The batch of a model: the first size of its first tensor, in all inputs that begin with it.

    Raises:
        UsageError: no input has a size, or it is not fixed.
    """
    sized = [(position, leaf.shape[0]) for position, leaf in enumerate(signature.leaves) if leaf.shape]
    if not sized:
        raise UsageError(f"no input of {model} has a dimension", hint="--fixed looks at the first dimension of inputs")
    first, dim = sized[0]
    if not dim.fixed:
        raise UsageError(
            f"axis 0 of {signature.name(first)} is not fixed: {dim.symbol}",
            hint="without --fixed, its sizes are varied",
        )
    axes = tuple(InputAxis(position, 0) for position, other in sized if other == dim)
    text = f"axis 0 of {signature.name(first)}"
    return VariedSize("", axes, text, Dim(dim.minimum, dim.maximum), is_batch=True)


class _FixedRuns:
    def __init__(self, options: FixedBatchOptions, folder: Path, steps: Steps) -> None:
        self._options, self._folder, self._steps = options, folder, steps
        self._left_out: list[str] = []
        built = [self._built(model, folder / f"{number}.pt2") for number, model in enumerate(options.models)]
        self._packages = {size.bounds.minimum: (package, size) for package, size in built}
        self._largest = max(self._packages)
        if self._largest == 1:
            package, size = self._packages[1]
            signature = input_files.read_signature(archive.inspect(package))
            raise UsageError(
                f"{size.text} has one row: there is no other place, and nothing beside the sample",
                hint=export_hint(signature),
            )
        self._given = self._inputs()
        self._sample = range(options.sample, options.sample + 1)
        require_sample(self._given, self._packages[self._largest][1], self._sample)

    def _built(self, model: Path, output: Path) -> tuple[Path, VariedSize]:
        options = self._options
        building = BuildOptions(
            program=model,
            output=output,
            inductor_configs=options.inductor_configs,
            user_code=options.user_code,
        )
        has_inputs = options.inputs is not None or options.random_inputs is not None
        package = instrumented(model, building, self._steps, name=f"build {model.name}", has_inputs=has_inputs)
        return package, fixed_size(input_files.read_signature(archive.inspect(package)), model)

    def _inputs(self) -> Inputs:
        options, artifact = self._options, archive.inspect(self._packages[self._largest][0])
        signature = input_files.read_signature(artifact)
        if options.inputs is not None:
            return input_files.read(options.inputs, signature)
        if options.random_inputs is not None:
            return random_inputs.make(signature, artifact.manifest(), options.random_inputs)
        embedded = input_files.read_embedded(artifact)
        if embedded is None:
            raise input_files.missing_inputs_error(str(options.models[-1]), signature, ("--random-inputs", "0"))
        return embedded

    def compare(self) -> FixedBatch:
        size, smaller = self._largest, sorted(self._packages)[:-1]
        of_sizes = [self._run(SampleSurroundings(one, 0, Others.GIVEN)) for one in smaller]
        base = self._run(SampleSurroundings(size, 0, Others.GIVEN))
        runs = [*(FixedRun(run, _SIZE) for run in (*of_sizes[1:], base) if smaller)]
        first = of_sizes[0] if smaller else base
        compared = [(first, run) for run in runs]
        asked = [(place, Others.GIVEN, _PLACE, base) for place in _places(size)]
        asked += [(0, Others.DRAWN, _ROWS, base)] if size > 1 else []
        for place, others, changed, beside in asked:
            if found := self._tried(SampleSurroundings(size, place, others)):
                compared.append((beside, FixedRun(found, changed)))
                is_last = changed == _PLACE and place == size - 1
                if is_last and (small := self._tried(SampleSurroundings(size, place, Others.SMALL))):
                    compared.append((found, FixedRun(small, _ROWS)))
        compared.append((base, FixedRun(self._run(base.surroundings, again=True), _AGAIN)))
        with self._steps.step("compare") as note:
            outputs = tuple(one for beside, run in compared for one in outputs_of(beside, run))
            note.text = wording.pluralize(len(outputs), "output")
        return FixedBatch(
            axis=self._packages[size][1].text,
            first=first,
            runs=tuple(run for _, run in compared),
            outputs=outputs,
            directory=self._folder,
            notes=tuple(self._left_out),
        )

    def _tried(self, surroundings: SampleSurroundings) -> SampleRun | None:
        """A run with rows at other places or with other values, which the model may not be made for."""
        try:
            return self._run(surroundings)
        except ModelFaultError as error:
            self._left_out.append(surroundings.left_out(error))
            return None

    def _run(self, surroundings: SampleSurroundings, *, again: bool = False) -> SampleRun:
        """A run in which the sample has these surroundings.

        Raises:
            ModelFaultError: the model does not end well.
        """
        package, varied = self._packages[surroundings.size]
        name = f"{surroundings.text}{' again' if again else ''}"
        file = self._folder / "inputs" / f"{name.replace(', ', '_').replace(' ', '_')}.pt"
        file.parent.mkdir(exist_ok=True)
        input_files.write(inputs_of(self._given, varied, self._sample, surroundings), file)
        with self._steps.step(f"run {name}") as note:
            everything = recording_everything(package, self._folder / _RUNS)
            options = replace(everything, inputs=file, level=3, user_code=self._options.user_code)
            found = run_substituted(options, (), self._folder / "runs" / file.stem)
            note.text = wording.pluralize(len(found.run.launches), "launch")
        require_end(found.run, package, name)
        return SampleRun(surroundings=surroundings, run=found.run, outputs=found.outputs, width=1)


def _places(size: int) -> Sequence[int]:
    """The other places that are looked at: the last one, and one in the middle."""
    return tuple(dict.fromkeys(place for place in (size // 2, size - 1) if place))


def outputs_of(base: SampleRun, other: FixedRun) -> Iterator[FixedOutput]:
    """Yields the outputs of a run, against those of the one that it is compared with."""
    for index in sorted({*base.outputs, *other.run.outputs}):
        files = base.outputs.get(index), other.run.outputs.get(index)
        if files[0] is None or files[1] is None:
            yield FixedOutput(index, other, unknown="one of the runs returned no tensor there")
            continue
        shapes = layout_of(files[0]).shape, layout_of(files[1]).shape
        is_batch = all(
            shape and shape[0] == run.surroundings.size for shape, run in zip(shapes, (base, other.run), strict=True)
        )
        if not is_batch or shapes[0][1:] != shapes[1][1:]:
            texts = " and ".join(dict.fromkeys(str(list(shape)) for shape in shapes))
            yield FixedOutput(index, other, unknown=f"its first dimension is not the batch: {texts}")
            continue
        found: RowMap = (SplitAxis(1, 1), *[SplitAxis(0, 0)] * (len(shapes[0]) - 1))
        samples = [
            sample_of(open_tensor(file), shape, found, run.extent)
            for file, shape, run in zip(files, shapes, (base, other.run), strict=True)
            if file is not None
        ]
        difference = element_difference(samples[0], samples[1])
        yield FixedOutput(index, other, difference if difference.different else None)


def fixed_lines(found: FixedBatch) -> list[str]:
    """The runs, the outputs that differ, what was not asked, and the verdict."""
    sizes = found.sizes
    packages = (
        f"one package, of size {sizes[0]}"
        if len(sizes) == 1
        else f"a package for each size: {', '.join(map(str, sizes))}"
    )
    lines = [
        f"sample   1 row along {found.axis}, which is fixed: {packages}",
        f"against  {'; '.join(_text(one) for one in found.runs)}",
        "",
    ]
    lines += dict.fromkeys(f"output {one.index}: not known: {one.unknown}" for one in found.unknown)
    for one in found.outputs:
        if one.difference is not None:
            differ = one.difference
            ulp = "" if differ.max_ulp is None else f", at most {wording.number(differ.max_ulp)} ULP"
            count = f"{differ.different} of {wording.pluralize(differ.elements, 'element')} of the sample differ"
            lines.append(f"output {one.index}: {count}{ulp} ({_text(one.run)})")
    lines.append("note: launches are not compared: buffers of one size do not show which elements are the sample's")
    if len(sizes) == 1:
        lines.append("note: other sizes of the batch were not asked: the model has none")
    else:
        lines.append(
            "note: packages of several sizes are several compilations, so no launch can be named for a difference"
        )
    return [*lines, *(f"note: {note}" for note in found.notes), found.verdict]


def _text(one: FixedRun) -> str:
    return f"{one.run.surroundings.text}{' again' if one.changed == _AGAIN else ''}"


def fixed_document(found: FixedBatch) -> dict[str, Any]:
    """The object that `aoti-debug invariance --fixed --json` prints."""
    return {
        "format": FORMAT,
        "verdict": found.verdict,
        "axis": found.axis,
        "notes": list(found.notes),
        "sizes": list(found.sizes),
        "runs": [{"run": str(found.first.run.path), **found.first.surroundings.members, "changed": None}]
        + [
            {"run": str(one.run.run.path), **one.run.surroundings.members, "changed": one.changed} for one in found.runs
        ],
        "outputs": [
            {
                "output": one.index,
                **one.run.run.surroundings.members,
                "changed": one.run.changed,
                "different": 0 if one.difference is None else one.difference.different,
                "unknown": one.unknown or None,
            }
            for one in found.outputs
        ],
    }
