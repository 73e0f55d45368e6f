"""The results that a program gives in place of launches, and its outputs, evaluated from a recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.compare_run import Scope, reference_of, request_for
from aoti_debug.compare.protocol.request import Region, ValueArithmetic, WantedValues
from aoti_debug.compare.regions.programs import program_runs
from aoti_debug.compare.regions.regions import Regions, find_regions
from aoti_debug.compare.run_worker import evaluate
from aoti_debug.compare.what_if.instructions import Replace
from aoti_debug.runs.rundir.run_directory import RunDir


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
    request = replace(
        request_for(run, package, scope, _unique(list(chosen.values()))),
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


def _unique(regions: Sequence[Region]) -> tuple[Region, ...]:
    return tuple({region.launch: region for region in regions}.values())
