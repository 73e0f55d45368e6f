"""Explains a non-finite element from saved tensors: the values that it was computed from, and the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.abi import Phase
from aoti_debug.diagnosis.findings import Finding, Place
from aoti_debug.manifest import Role
from aoti_debug.recording.values import Number, unravel
from aoti_debug.rundir.load_tensors import saved_values
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.kernel_source import model_lines, result_slices
from aoti_debug.triage.kernel_source.placement import LaunchTensors
from aoti_debug.triage.nonfinite import causes, matrix_products
from aoti_debug.triage.nonfinite.causes import Cause
from aoti_debug.triage.nonfinite.infinities import intended_signs
from aoti_debug.triage.nonfinite.observed_values import INFINITE, Special
from aoti_debug.triage.nonfinite.operand_values import operand_values

if TYPE_CHECKING:
    from torch import Tensor


def explain(finding: Finding, run: RunDir) -> Finding:
    """The finding with elements, operand values and causes at the launches that it names, if their tensors were saved.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    if finding.where is None:
        return finding
    if finding.where.input:
        return _explain_input(finding, finding.where, run)
    where, sentences = _explain_place(finding.where, run, infinite=bool(finding.chain))
    chain = finding.chain
    if chain:
        last, last_sentences = _explain_place(chain[-1], run, infinite=False)
        chain = (where, *chain[1:-1], last)
        sentences += last_sentences
    origin = where if finding.origin == finding.where else finding.origin
    return replace(finding, where=where, origin=origin, chain=chain, evidence=(*sentences, *finding.evidence))


def _explain_input(finding: Finding, where: Place, run: RunDir) -> Finding:
    for launch in run.launches:
        argument = launch.argument(where.argument)
        tensor = None if argument is None else _saved_tensor(run, argument, Phase.BEFORE)
        if tensor is not None and (element := _first_element(tensor, Special.NAN)) is not None:
            located = replace(where, element=element)
            sentence = f"{where.input}{_coordinates(tensor, element)} is NaN{_count_suffix(int(tensor.isnan().sum()))}"
            return replace(finding, where=located, evidence=(sentence, *finding.evidence))
    return finding


def _explain_place(place: Place, run: RunDir, *, infinite: bool) -> tuple[Place, tuple[str, ...]]:
    """The place with its element, and sentences about it, the cause first.

    Args:
        infinite: explain an infinity and not NaN.
    """
    launch = run.find_launch(place.launch)
    argument = launch.argument(place.argument) if launch is not None else None
    if launch is None or argument is None:
        return place, ()
    result = _saved_tensor(run, argument, Phase.AFTER)
    if result is None:
        return place, ()
    selected = _select_special(run, launch, argument, result, infinite)
    if selected is None:
        return place, (f"in the run that saved the tensors, {argument.name} of {launch.id} was finite",)
    special, element = selected
    before, after = _tensors(run, launch)
    cause = _cause(run, launch, argument, LaunchTensors(before, after), element, special)
    sentence = f"{argument.name}{_coordinates(result, element)} is {special.value}"
    sentence += _count_suffix(int(causes.is_special(result, special).sum()))
    operands = operand_values(run, launch, argument, before, tuple(result.shape), element, cause.read if cause else {})
    sentence += f"; it was computed from {operands}" if operands else ""
    frame = (
        model_lines.operation_line(launch, cause.operation)
        if cause is not None
        else model_lines.kernel_name_line(launch)
    )
    return replace(place, element=element, frame=frame or place.frame), (*(cause.sentences if cause else ()), sentence)


def _count_suffix(count: int) -> str:
    return "" if count == 1 else f", the first of {count}"


def _select_special(
    run: RunDir, launch: Launch, argument: Argument, result: Tensor, infinite: bool
) -> tuple[Special, int] | None:
    """The value to explain and its first element: NaN, else an unintended infinity; None without either."""
    signs = intended_signs(launch, argument, run.manifest)
    unintended = [special for special in INFINITE if special.sign not in signs]
    for special in unintended if infinite else [Special.NAN, *unintended]:
        element = _first_element(result, special)
        if element is not None:
            return special, element
    return None


def _cause(
    run: RunDir, launch: Launch, argument: Argument, arguments: LaunchTensors, element: int, special: Special
) -> Cause | None:
    kernel = result_slices.kernel_of(launch, run.manifest)
    if kernel is None:
        sentence = matrix_products.cause(launch, argument, arguments, element, special)
        return Cause((sentence,), "", {}) if sentence else None
    result_slice = result_slices.launch_slices(launch, run.manifest).get(argument.spec.param)
    if result_slice is None:
        return None
    dtypes = {a.spec.param: a.layout.dtype for a in launch.args if a.spec.param and a.layout is not None}
    numbers = {a.spec.param: a.after.value for a in launch.args if a.spec.param and isinstance(a.after, Number)}
    source = causes.KernelStatements(
        result_slices.statements(kernel, frozenset(dtypes)), result_slice.operations, dtypes, numbers
    )
    return causes.find_cause(source, arguments, argument.spec.param, element, special)


def _tensors(run: RunDir, launch: Launch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The saved tensors that a launch read, and those that it wrote, by parameter."""
    before, after = {}, {}
    for argument in launch.args:
        if argument.role is not Role.OUT and (tensor := _saved_tensor(run, argument, Phase.BEFORE)) is not None:
            before[argument.spec.param or argument.name] = tensor
        if argument.written and (tensor := _saved_tensor(run, argument, Phase.AFTER)) is not None:
            after[argument.spec.param or argument.name] = tensor
    return before, after


def _saved_tensor(run: RunDir, argument: Argument, phase: Phase) -> Tensor | None:
    """A saved tensor in float64 (the magnitudes of a complex one, integers as they are); None if it was not saved."""
    values = saved_values(run, argument, phase)
    if values is None:
        return None
    if values.is_complex():
        return values.abs().double()
    return values.double() if values.dtype.is_floating_point else values


def _first_element(tensor: Tensor, special: Special) -> int | None:
    positions = causes.is_special(tensor.reshape(-1), special).nonzero()
    return int(positions[0]) if positions.numel() else None


def _coordinates(tensor: Tensor, element: int) -> str:
    """ "[0, 3]"."""
    return str(list(unravel(element, tuple(tensor.shape)))) if tensor.dim() else ""
