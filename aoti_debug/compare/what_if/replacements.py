"""Results in place of those of launches, `0.36=eager`: of a recorded run, of the program, or of another package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path

from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.compare_run import Scope, reference_of, request_for
from aoti_debug.compare.diff.difference import TensorDifference
from aoti_debug.compare.diff.pairs import LaunchPair
from aoti_debug.compare.evaluation_process import evaluate
from aoti_debug.compare.measure.output_errors import output_error
from aoti_debug.compare.protocol.request import Region, ValueArithmetic, WantedValues
from aoti_debug.compare.regions.program_calls import program_runs
from aoti_debug.compare.regions.regions import Regions, find_regions
from aoti_debug.compare.what_if.substituted_run import Instruction, Replace, Skip
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_HINT = "as 0.36=eager, 0.36=fp64, 0.36=OTHER.pt2 or 0.36=skip"


class ResultSource(str, Enum):
    """The origin of the results that replace those of a launch."""

    EAGER = "eager"  # the program, from the recorded inputs of the launch
    DOUBLE = "fp64"  # the same, computed in float64 and rounded at the end
    PACKAGE = "package"  # the paired launch of another package
    SKIP = "skip"  # nowhere: it is not launched


@dataclass(frozen=True)
class Substitution:
    """A launch, "0.36", and what replaces its results.

    Attributes:
        package: of Source.PACKAGE.
    """

    launch: str
    source: ResultSource
    package: Path | None = None

    def __str__(self) -> str:
        return f"{self.launch}={self.package or self.source.value}"


def parse(text: str) -> Substitution:
    """Parses LAUNCH=WHAT.

    Raises:
        UsageError: it is none.
    """
    launch, equals, what = text.partition("=")
    if not equals or not what:
        raise UsageError(f"--substitute {text} is not LAUNCH=WHAT", hint=_HINT)
    key = run_directory.parse_launch_id(launch)
    if what.endswith(".pt2"):
        return Substitution(str(key), ResultSource.PACKAGE, Path(what))
    if what not in (ResultSource.EAGER, ResultSource.DOUBLE, ResultSource.SKIP):
        raise UsageError(f"--substitute {text}: {what!r} is not known", hint=_HINT)
    return Substitution(str(key), ResultSource(what))


@dataclass(frozen=True)
class ProgramValues:
    """The results and outputs of a program.

    Attributes:
        replacements: for the launches that were asked for.
        outputs: the files of what it returns in the last call, by index.
        failure: why not all outputs are known; "" if they are.
        notes: launches that are evaluated together with others.
    """

    replacements: tuple[Replace, ...]
    outputs: Mapping[int, Path]
    failure: str
    notes: tuple[str, ...]


def program_values(run: RunDir, wanted: Mapping[str, ValueArithmetic], scope: Scope, folder: Path) -> ProgramValues:
    """Evaluates the program of a run that saved its tensors.

    Args:
        wanted: the launches whose results are needed, "0.36".
        folder: for the files.

    Raises:
        UsageError: a launch has no values in the program.
        ArtifactError, RunDirError: the package holds no reference, or was not found.
        TargetError: the program cannot be evaluated.
    """
    reference, package = reference_of(run)
    regions = find_regions(run, reference)
    chosen = {launch: _region(regions, run, launch) for launch in wanted}
    folder.mkdir(parents=True, exist_ok=True)
    programs = program_runs(run, reference, regions)[-1:]
    unique = {region.launch: region for region in chosen.values()}
    request = replace(
        request_for(run, package, scope, tuple(unique.values())),
        wanted=tuple(WantedValues(chosen[launch].launch, arithmetic) for launch, arithmetic in wanted.items()),
        programs=tuple(replace(program, outputs=(), states=()) for program in programs),
        outputs=True,
    )
    evaluated = evaluate(request, folder, lambda _: None)
    for result in evaluated.results:
        if result.failure:
            raise UsageError(
                f"what {result.launch} should write is not known: {result.failure}",
                hint="=OTHER.pt2 takes the result of another package",
            )
    notes = tuple(
        f"{launch} is evaluated together with {region.launch}, whose result is replaced"
        for launch, region in chosen.items()
        if region.launch != launch
    )
    return ProgramValues(
        tuple(Replace(value.launch, value.argument, Path(value.path)) for value in evaluated.values),
        {output.index: Path(output.path) for output in evaluated.outputs},
        evaluated.program_failure,
        notes,
    )


def _region(regions: Regions, run: RunDir, launch: str) -> Region:
    run.launch(launch)
    own = [region for region in regions.regions if region.launch == launch]
    around = [region for region in regions.regions if launch in region.launches]
    if not own and not around:
        reason = next((item.reason for item in regions.uncovered if item.launch == launch), "it writes no tensor")
        raise UsageError(
            f"what {launch} should write is not known: {reason}", hint="=OTHER.pt2 takes the result of another package"
        )
    return (own or around)[0]


def results_of(pair: LaunchPair, first: RunDir) -> Iterator[Replace]:
    """The results of the first run that were saved, for what the launch of the second writes in the same shape.

    Raises:
        RunDirError: a path leads outside of the run.
    """
    for tensors in pair.writes:
        layouts = tensors.a.argument.layout, tensors.b.argument.layout
        if layouts[0] is None or layouts[1] is None or tensors.a.file is None:
            continue
        if (layouts[0].dtype, layouts[0].shape) == (layouts[1].dtype, layouts[1].shape):
            yield Replace(pair.launch.id, tensors.b.argument.name, first.tensor_path(tensors.a.file))


def is_rounding(difference: TensorDifference, first: RunDir, second: RunDir) -> bool:
    """True if rounding may explain the difference of two saved tensors; False if that is not known."""
    files = difference.pair.a.file, difference.pair.b.file
    if files[0] is None or files[1] is None or difference.elements is None:
        return False
    return output_error(second.tensor_path(files[1]), first.tensor_path(files[0])).is_right


def recorded_results(run: RunDir, launch: Launch) -> Iterator[Instruction]:
    """The instructions by which everything before a launch of a run gets what was recorded.

    A launch of which a result was not saved runs again.

    Raises:
        RunDirError: a path leads outside of the run.
    """
    for earlier in run.launches:
        if earlier.sequence >= launch.sequence:
            return
        written = {argument.name: argument.files.get(Phase.AFTER) for argument in earlier.args if argument.written}
        files = {name: saved for name, saved in written.items() if saved is not None and saved.path}
        if not written or len(files) < len(written):
            continue
        yield Skip(earlier.id)
        for name, saved in files.items():
            yield Replace(earlier.id, name, run.tensor_path(saved))
