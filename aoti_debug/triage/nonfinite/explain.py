"""The element that went wrong, what the launch read there, and why it came out so, from saved tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.abi import Phase
from aoti_debug.diagnosis.findings import Finding, Place
from aoti_debug.manifest import Role
from aoti_debug.rundir.load_tensors import saved_values
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.kernel_source import lines, slices
from aoti_debug.triage.kernel_source.placement import ArgumentLayouts
from aoti_debug.triage.nonfinite import causes, operators
from aoti_debug.triage.nonfinite.causes import Cause
from aoti_debug.triage.nonfinite.infinities import intended
from aoti_debug.triage.nonfinite.observed import INFINITE, Special
from aoti_debug.triage.nonfinite.operand_values import inputs_there
from aoti_debug.values import Number, unravel

if TYPE_CHECKING:
    from torch import Tensor


def explain(finding: Finding, run: RunDir) -> Finding:
    """The finding with elements, values and causes at the launches that it names, as far as their tensors were saved.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    if finding.where is None:
        return finding
    if finding.where.input:
        return _of_input(finding, finding.where, run)
    where, said = _of_place(finding.where, run, infinite=bool(finding.chain))
    chain = finding.chain
    if chain:
        last, more = _of_place(chain[-1], run, infinite=False)
        chain = (where, *chain[1:-1], last)
        said += more
    origin = where if finding.origin == finding.where else finding.origin
    return replace(finding, where=where, origin=origin, chain=chain, evidence=(*said, *finding.evidence))


def _of_input(finding: Finding, where: Place, run: RunDir) -> Finding:
    for launch in run.launches:
        argument = launch.argument(where.argument)
        tensor = None if argument is None else _saved(run, argument, Phase.BEFORE)
        if tensor is not None and (element := _first(tensor, Special.NAN)) is not None:
            there = replace(where, element=element)
            said = f"{where.input}{_at(tensor, element)} is NaN{_of(int(tensor.isnan().sum()))}"
            return replace(finding, where=there, evidence=(said, *finding.evidence))
    return finding


def _of_place(place: Place, run: RunDir, *, infinite: bool) -> tuple[Place, tuple[str, ...]]:
    """The place with its element, and sentences on it, the cause first."""
    launch = next((launch for launch in run.launches if launch.id == place.launch), None)
    argument = launch.argument(place.argument) if launch is not None else None
    if launch is None or argument is None:
        return place, ()
    result = _saved(run, argument, Phase.AFTER)
    if result is None:
        return place, ()
    found = _which(run, launch, argument, result, infinite)
    if found is None:
        return place, (f"in the run that saved the tensors, {argument.name} of {launch.id} was finite",)
    special, element = found
    before, after = _tensors(run, launch)
    cause = _cause(run, launch, argument, ArgumentLayouts(before, after), element, special)
    said = f"{argument.name}{_at(result, element)} is {special.value}"
    said += _of(int(causes.is_special(result, special).sum()))
    read = inputs_there(run, launch, argument, before, tuple(result.shape), element, cause.read if cause else {})
    said += f"; there it read {read}" if read else ""
    known = lines.of_operation(launch, cause.operation) if cause is not None else lines.of_name(launch)
    frame = known or place.frame
    return replace(place, element=element, frame=frame), (*(cause.sentences if cause else ()), said)


def _of(count: int) -> str:
    return "" if count == 1 else f", the first of {count}"


def _which(
    run: RunDir, launch: Launch, argument: Argument, result: Tensor, infinite: bool
) -> tuple[Special, int] | None:
    """What to explain: NaN, else an infinity that nobody meant."""
    meant = intended(launch, argument, run.manifest)
    accidental = [special for special in INFINITE if special.sign not in meant]
    for special in accidental if infinite else [Special.NAN, *accidental]:
        element = _first(result, special)
        if element is not None:
            return special, element
    return None


def _cause(
    run: RunDir, launch: Launch, argument: Argument, arguments: ArgumentLayouts, element: int, special: Special
) -> Cause | None:
    kernel = slices.kernel_of(launch, run.manifest)
    if kernel is None:
        said = operators.cause(launch, argument, arguments, element, special)
        return Cause((said,), "", {}) if said else None
    found = slices.of_launch(launch, run.manifest).get(argument.spec.param)
    if found is None:
        return None
    dtypes = {a.spec.param: a.layout.dtype for a in launch.args if a.spec.param and a.layout is not None}
    numbers = {a.spec.param: a.after.value for a in launch.args if a.spec.param and isinstance(a.after, Number)}
    source = causes.KernelStatements(slices.statements(kernel, frozenset(dtypes)), found.operations, dtypes, numbers)
    return causes.of_kernel(source, arguments, argument.spec.param, element, special)


def _tensors(run: RunDir, launch: Launch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What a launch read and what it left, by parameter."""
    before, after = {}, {}
    for argument in launch.args:
        if argument.role is not Role.OUT and (tensor := _saved(run, argument, Phase.BEFORE)) is not None:
            before[argument.spec.param or argument.name] = tensor
        if argument.written and (tensor := _saved(run, argument, Phase.AFTER)) is not None:
            after[argument.spec.param or argument.name] = tensor
    return before, after


def _saved(run: RunDir, argument: Argument, phase: Phase) -> Tensor | None:
    """A saved tensor in float64 (a complex one by its magnitude, integers as they are)."""
    values = saved_values(run, argument, phase)
    if values is None:
        return None
    if values.is_complex():
        return values.abs().double()
    return values.double() if values.dtype.is_floating_point else values


def _first(tensor: Tensor, special: Special) -> int | None:
    found = causes.is_special(tensor.reshape(-1), special).nonzero()
    return int(found[0]) if found.numel() else None


def _at(tensor: Tensor, element: int) -> str:
    """ "[0, 3]"."""
    return str(list(unravel(element, tuple(tensor.shape)))) if tensor.dim() else ""
