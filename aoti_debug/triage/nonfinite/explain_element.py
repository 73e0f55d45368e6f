"""Explains a non-finite element from saved tensors: the values that it was computed from, and the cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.base import wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Number, unravel
from aoti_debug.runs.diagnosis.dataflow import Dataflow, model_name
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.diagnosis.special_values import INFINITE, Special, intended_signs
from aoti_debug.runs.kernel_source import model_lines, result_slices
from aoti_debug.runs.kernel_source.placement import LaunchTensors
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.load_tensors import saved_values
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.nonfinite import causes
from aoti_debug.triage.nonfinite.causes import Cause
from aoti_debug.triage.nonfinite.finding_text import SHOWN

if TYPE_CHECKING:
    from torch import Tensor

_MAX_OPERANDS = 6  # operands in one sentence


@dataclass(frozen=True)
class OperandValues:
    """The values that an element was computed from, as texts; at most 6 of each.

    Attributes:
        read: "buf0 = 0", "row 3 of x (16 elements, 1 +Inf)": what the kernel's arithmetic or the operator reads.
        guessed: the same of operands whose element is taken to be at the same coordinates.
    """

    read: tuple[str, ...]
    guessed: tuple[str, ...]


def operand_values(
    run: RunDir,
    launch: Launch,
    argument: Argument,
    before: Mapping[str, Tensor],
    shape: tuple[int, ...],
    element: int,
    read: Mapping[str, Tensor],
) -> OperandValues:
    """The operand values of an element of a launch's result.

    Args:
        before: the tensors before the launch, by parameter.
        shape: the shape of the result.
        element: the row-major index in the result.
        read: the values known to have been read for the element, by parameter: 0-d, or a row.
    """
    result_slice = result_slices.launch_slices(launch, run.manifest).get(argument.spec.param)
    flow = Dataflow(run)
    known: dict[str, None] = {}
    guessed: dict[str, None] = {}
    for other in launch.args:
        tensor = before.get(other.spec.param or other.name)
        if tensor is None or (result_slice is not None and other.spec.param not in result_slice.sources):
            continue
        name = flow.content_name(launch, other)
        values = read.get(other.spec.param)
        factor = causes.factor(launch, other, name, tensor, shape, element)
        if values is not None:
            known[f"a row of {name} {row(values)}" if values.dim() else f"{name} = {spell(float(values))}"] = None
        elif factor is not None:
            known[f"{factor[0]} {row(factor[1])}"] = None
        elif operand := _operand(name, tensor, shape, element):
            guessed[operand] = None
    return OperandValues(tuple(known)[:_MAX_OPERANDS], tuple(guessed)[:_MAX_OPERANDS])


def _operand(name: str, tensor: Tensor, shape: tuple[int, ...], element: int) -> str:
    at = unravel(element, shape)
    value = _corresponding_value(tensor, shape, at)
    if value is not None:
        return f"{name} = {spell(value)}"
    if tensor.dim() == 0 or tensor.numel() == 0:
        return ""
    reduced = _reduced_values(tensor, shape, at)
    return "" if reduced is None else f"a row of {name} {row(reduced)}"


def _corresponding_value(tensor: Tensor, shape: tuple[int, ...], at: tuple[int, ...]) -> float | None:
    """The value at the same coordinates; None unless the tensor has the result's shape or is broadcast to it."""
    if tensor.dim() > len(shape):
        return None
    own = at[len(at) - tensor.dim() :]
    sizes = shape[len(shape) - tensor.dim() :]
    if any(mine not in (1, size) for mine, size in zip(tensor.shape, sizes, strict=True)):
        return None
    return float(tensor[tuple(0 if mine == 1 else i for mine, i in zip(tensor.shape, own, strict=True))])


def _reduced_values(tensor: Tensor, shape: tuple[int, ...], at: tuple[int, ...]) -> Tensor | None:
    """The values that were reduced to the element; None unless the result's shape is the tensor's without a dimension,
    or with 1 for it."""
    sizes = tuple(tensor.shape)
    if len(sizes) == len(shape) and all(b in (1, a) for a, b in zip(sizes, shape, strict=True)):
        return tensor[tuple(i if b == a else slice(None) for a, b, i in zip(sizes, shape, at, strict=True))].reshape(-1)
    for axis in reversed(range(len(sizes))):
        if sizes[:axis] + sizes[axis + 1 :] == shape:
            row_at = (*at[:axis], slice(None), *at[axis:])
            return tensor[row_at]
    return tensor.reshape(-1) if math.prod(shape) == 1 else None


def row(values: Tensor) -> str:
    """ "(16 elements, 1 +Inf, 3 zeros, finite from -2 to 5)"."""
    if str(values.dtype) == "torch.bool":
        return f"({wording.pluralize(values.numel(), 'element')}, {int(values.sum())} true)"
    flat = values.reshape(-1).double()
    if flat.numel() and bool((flat == -math.inf).all()):
        return f"({wording.pluralize(flat.numel(), 'element')}, all -Inf)"
    counts = {
        "NaN": int(flat.isnan().sum()),
        "+Inf": int((flat == math.inf).sum()),
        "-Inf": int((flat == -math.inf).sum()),
        "zero": int((flat == 0).sum()),
    }
    parts = [
        wording.pluralize(count, name) if name == "zero" else f"{count} {name}"
        for name, count in counts.items()
        if count
    ]
    finite = flat[flat.isfinite()]
    if finite.numel():
        parts.append(f"finite from {spell(float(finite.min()))} to {spell(float(finite.max()))}")
    return f"({', '.join([wording.pluralize(flat.numel(), 'element'), *parts])})"


def spell(value: float) -> str:
    """ "1.5", "NaN", "-Inf"."""
    if math.isnan(value):
        return "NaN"
    return f"{value:.6g}" if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"


def explain(finding: Finding, run: RunDir) -> Finding:
    """The finding with elements, operand values and causes at the launches that it names, if their tensors were saved.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    if finding.where is None:
        return finding
    if not finding.where.launch:
        return _explain_input(finding, finding.where, run)
    is_of_input = finding.origin is not None and not finding.origin.launch
    where, told = _explain_place(finding.where, run, infinite=bool(finding.chain))
    chain = finding.chain
    if chain:
        last, of_last = _explain_place(chain[-1], run, infinite=False)
        chain = (where, *chain[1:-1], last)
        told = _Told((*told.observed, *of_last.observed), (*told.possible, *of_last.possible))
    origin = where if finding.origin == finding.where else finding.origin
    first = SHOWN if is_of_input else 0
    evidence = (*finding.evidence[:first], *told.observed, *finding.evidence[first:])
    possible = (*finding.possible, *told.possible)
    return replace(finding, where=where, origin=origin, chain=chain, evidence=evidence, possible=possible)


@dataclass(frozen=True)
class _Told:
    """Sentences about a place: those observed, the cause first, and those with "may"."""

    observed: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()


def _explain_input(finding: Finding, where: Place, run: RunDir) -> Finding:
    """The element of an input or weight, unless runs without its values have told it already."""
    special = next((special for special in Special if finding.what.startswith(special.value)), Special.NAN)
    for launch in run.launches if where.element is None else ():
        argument = launch.argument(where.argument)
        tensor = None if argument is None else _saved_tensor(run, argument, Phase.BEFORE)
        if tensor is not None and (element := _first_element(tensor, special)) is not None:
            located = replace(where, element=element)
            number = int(causes.is_special(tensor, special).sum())
            at = f"{where.input}{_coordinates(tensor, element)}"
            sentence = f"{at} is {special.value}{_count_suffix(number)}"
            return replace(finding, where=located, evidence=(sentence, *finding.evidence))
    return finding


def _explain_place(place: Place, run: RunDir, *, infinite: bool) -> tuple[Place, _Told]:
    """The place with its element, and sentences about it.

    Args:
        infinite: explain an infinity and not NaN.
    """
    launch = run.find_launch(place.launch)
    argument = launch.argument(place.argument) if launch is not None else None
    if launch is None or argument is None:
        return place, _Told()
    result = _saved_tensor(run, argument, Phase.AFTER)
    if result is None:
        return place, _Told()
    name = model_name(run.manifest, argument)
    before, after = _tensors(run, launch)
    own = before.get(argument.spec.param or argument.name)
    selected = _select_special(run, launch, argument, result, own, infinite=infinite)
    if selected is None:
        return place, _Told((f"in the run that saved the tensors, {name} of {launch.id} was finite",))
    special, element, new = selected
    at = f"{name}{_coordinates(result, element)}"
    if not new:
        return replace(place, element=element), _Told((f"{at} is {special.value}, as it was before {launch.id}",))
    cause = _cause(run, launch, argument, LaunchTensors(before, after), element, special)
    sentence = f"{at} is {special.value}{_count_suffix(new)}"
    operands = operand_values(run, launch, argument, before, tuple(result.shape), element, cause.read if cause else {})
    sentence += f"; it was computed from {', '.join(operands.read)}" if operands.read else ""
    possible = (f"{at} may have been computed from {', '.join(operands.guessed)}",) if operands.guessed else ()
    frame = (
        model_lines.operation_line(launch, cause.operation)
        if cause is not None
        else model_lines.kernel_name_line(launch)
    )
    observed = (*(cause.sentences if cause else ()), sentence)
    return replace(place, element=element, frame=frame or place.frame), _Told(observed, possible)


def _count_suffix(count: int) -> str:
    return "" if count == 1 else f", the first of {count}"


def _select_special(
    run: RunDir, launch: Launch, argument: Argument, result: Tensor, before: Tensor | None, *, infinite: bool
) -> tuple[Special, int, int] | None:
    """The value to explain, its first element that is new, and how many are new; None without such a value.

    The element is the first of all if the memory held the same at each of them before the launch; then none is new.

    Args:
        before: what the memory of the result held before the launch; None where it is not known.
    """
    signs = intended_signs(launch, argument, run.manifest)
    unintended = [special for special in INFINITE if special.sign not in signs]
    for special in unintended if infinite else [Special.NAN, *unintended]:
        which = causes.is_special(result, special)
        if not bool(which.any()):
            continue
        known = before is not None and before.shape == result.shape
        new = which & ~causes.is_special(before, special) if known and before is not None else which
        shown = new if bool(new.any()) else which
        return special, int(shown.reshape(-1).nonzero()[0]), int(new.sum())
    return None


def _cause(
    run: RunDir, launch: Launch, argument: Argument, arguments: LaunchTensors, element: int, special: Special
) -> Cause | None:
    kernel = result_slices.kernel_of(launch, run.manifest)
    if kernel is None:
        sentence = causes.product_cause(launch, argument, arguments, element, special)
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
        if argument.has_data_before and (tensor := _saved_tensor(run, argument, Phase.BEFORE)) is not None:
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
