"""The coordinates of the elements that a finding names: ids[2, 5] for element 17."""

from __future__ import annotations

import math
from dataclasses import replace

from aoti_debug.package.recording.values import unravel
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.rundir.run_directory import RunDir


def with_coordinates(finding: Finding, run: RunDir) -> Finding:
    """The finding with the coordinates of its elements, as far as the run shows the shapes of their tensors."""
    return replace(
        finding,
        where=_located(finding.where, run),
        origin=_located(finding.origin, run),
        chain=tuple(_located(place, run) or place for place in finding.chain),
    )


def _located(place: Place | None, run: RunDir) -> Place | None:
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
        launches, names = [run.find_launch(place.launch)], [place.argument]
    else:
        inputs = zip(manifest.inputs, manifest.input_names or manifest.inputs, strict=False)
        constants = ((constant.name, constant.fqn) for constant in manifest.constants)
        names = [variable for variable, name in (*inputs, *constants) if place.input in (name, variable)]
        launches = list(run.launches)
    found = (launch.argument(name) for launch in launches if launch is not None for name in names)
    return next((argument.layout.shape for argument in found if argument and argument.layout), None)
