"""Where a value that is not finite does harm: in what leaves the model, and in integers made of NaN."""

from __future__ import annotations

from dataclasses import dataclass

from aoti_debug import dtypes
from aoti_debug.abi import CallKind
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.nonfinite.observed import Special, Spot, count, left
from aoti_debug.triage.nonfinite.roots import Roots


@dataclass(frozen=True)
class Sink:
    """
    Attributes:
        spot: the last that is not finite: a model output, or what integers are made of (as its reader holds it).
        how: the harm, as the end of "NaN …": "leaves the model as output 2 (buf9)".
    """

    spot: Spot
    how: str


def outputs(run: RunDir, roots: Roots, special: Special) -> list[Sink]:
    """What leaves a call of the model."""
    final: dict[object, tuple[Launch, Argument]] = {}
    for launch in run.launches:
        if launch.key.kind is not CallKind.MODEL:
            continue
        for argument in launch.args:
            if argument.written and roots.dataflow.is_output(argument):
                final[launch.key.call, argument.name] = (launch, argument)
    found = [
        Sink(Spot(launch, argument, special), f"leaves the model as {_output(run, argument)}")
        for launch, argument in final.values()
        if count(left(argument), special)
    ]
    return found + _through_branches(run, roots, special)


def integers(run: RunDir, roots: Roots) -> list[Sink]:
    """NaN that a launch makes integers of: argmax, a conversion, an index."""
    found = []
    for launch in run.launches:
        for made in launch.args:
            if not made.written or not _is_integer(made):
                continue
            for read in roots.feeding(launch, made, Special.NAN):
                if roots.dataflow.is_output(made) or roots.dataflow.readers(launch, made):
                    how = f"is made an integer of in {launch.id} {launch.kernel} ({made.name})"
                    found.append(Sink(Spot(launch, read, Special.NAN), how))
    return found


def _through_branches(run: RunDir, roots: Roots, special: Special) -> list[Sink]:
    """Results of a branch or a loop that are handed out without a launch: those that nobody reads, where the model has
    an output that no launch knows."""
    mentioned = {name for launch in run.launches for spec in launch.site.args for name in (spec.name, spec.base)}
    if set(run.manifest.outputs) - {""} <= mentioned:
        return []
    return [
        Sink(Spot(launch, argument, special), "leaves a branch or a loop of the model, and no launch reads it")
        for launch in run.launches
        if launch.site.subgraph
        for argument in launch.args
        if count(left(argument), special) and not roots.dataflow.readers(launch, argument)
    ]


def _output(run: RunDir, argument: Argument) -> str:
    names = (argument.name, argument.spec.base)
    for position, variable in enumerate(run.manifest.outputs):
        if variable and variable in names:
            return f"output {position} ({variable})"
    return f"the input that it changes ({argument.name})"


def _is_integer(argument: Argument) -> bool:
    return argument.layout is not None and dtypes.is_integer(argument.layout.dtype)
