"""Findings on a run: its verdict as a finding, and the coordinates of the elements that findings name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from aoti_debug.base import wording
from aoti_debug.package.recording.values import unravel
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.dataflow import input_kind
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, NO_FAULT, NONFINITE, Finding, Place, place_of
from aoti_debug.runs.diagnosis.output_values import OutputValues, output_values
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.timeline import Launch


def with_coordinates(finding: Finding, run: RunDir) -> Finding:
    """The finding with the coordinates of its elements, as far as the run shows the shapes of their tensors.

    Of a model input or weight that it names, it says which of these it is.
    """
    return replace(
        finding,
        where=_located(finding.where, run),
        origin=_located(finding.origin, run),
        chain=tuple(_located(place, run) or place for place in finding.chain),
    )


def _located(place: Place | None, run: RunDir) -> Place | None:
    if place is not None and place.input:
        place = replace(place, input_kind=input_kind(run.manifest, place.input))
    if place is None or place.element is None:
        return place
    shape = _shape(place, run)
    if shape is None or not 0 <= place.element < math.prod(shape):
        return place
    return replace(place, coordinates=tuple(unravel(place.element, shape)))


def _shape(place: Place, run: RunDir) -> tuple[int, ...] | None:
    """The shape of the tensor that a place names; None if the run has none of that name."""
    manifest = run.manifest
    if place.launch:
        launches: Sequence[Launch | None] = [run.find_launch(place.launch)]
        names = [place.argument]
    else:
        inputs = zip(manifest.inputs, manifest.input_names or manifest.inputs, strict=False)
        constants = ((constant.name, constant.fqn) for constant in manifest.constants)
        names = [variable for variable, name in (*inputs, *constants) if place.input in (name, variable)]
        launches = run.launches
    found = (launch.argument(name) for launch in launches if launch is not None for name in names)
    return next((argument.layout.shape for argument in found if argument and argument.layout), None)


_LISTED = 6  # suspects


def finding_of(run: RunDir, verdict: Verdict | None, arguments: Iterable[str] = ()) -> Finding:
    """The finding of a run: that of its verdict; without one, of kind NO_FAULT, or NONFINITE if its outputs are so.

    Whether the outputs are right is not judged here.

    Args:
        verdict: of this run.
        arguments: lines on the arguments of the guilty launch; evidence where it hangs.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    if verdict is None:
        return without_fault(run, output_values(run))
    hang = run.state is ExitKind.TIMEOUT
    launch = verdict.launch
    return Finding(
        kind=HANG if hang else FAULT,
        what=verdict.what.partition("\n")[0],
        where=place_of(launch) if launch is not None else None,
        evidence=(*_evidence(verdict), *(arguments if hang else ())),
        stack=verdict.frames,
        next=verdict.next_commands,
    )


def without_fault(run: RunDir, outputs: OutputValues) -> Finding:
    """The finding of a run that has no verdict: NONFINITE if its outputs are so, or else NO_FAULT.

    Args:
        outputs: of this run.
    """
    if outputs.what:
        return Finding(
            NONFINITE,
            outputs.what,
            where=outputs.where,
            evidence=outputs.evidence,
            next=suggested_commands.why_nonfinite(run),
            warnings=outputs.notes,
        )
    launched = wording.pluralize(len(run.launches), "launch")
    what = f"{launched}; {outputs.text}" if run.level else outputs.text
    if run.state in (ExitKind.RUNNING, ExitKind.STOPPED):
        what = f"{'still running' if run.state is ExitKind.RUNNING else 'stopped'}: {launched} so far"
    return Finding(NO_FAULT, what, next=(suggested_commands.show(run),), warnings=outputs.notes)


def _evidence(verdict: Verdict) -> Iterable[str]:
    yield verdict.why
    launch = verdict.launch
    if verdict.surfaced is not None:
        yield f"it was noticed in {verdict.surfaced.id} {verdict.surfaced.kernel}, which is a victim"
    if launch is None and verdict.suspects:
        names = ", ".join(f"{x.id} {x.kernel}" for x in verdict.suspects[:_LISTED])
        yield f"one of {len(verdict.suspects)} launches: {names}"
    if launch is not None and launch.loops:
        yield f"in iteration {', '.join(map(str, launch.loops))} of the loop, counted from 0"
