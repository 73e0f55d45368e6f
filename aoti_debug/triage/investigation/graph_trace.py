"""Asks the graph that kernels came from which operator of a launch failed, or made a non-finite element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from aoti_debug.base import dtypes
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.wording import first_line
from aoti_debug.compare.compare_run import Scope, has_reference
from aoti_debug.compare.locate_operator import CallInEager, LocatedOperand, LocatedOrigin
from aoti_debug.compare.outcome import refusal_sentences, refused_origin, refused_place
from aoti_debug.compare.protocol.messages import BadOperand, Computed, Made, Operand
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.diagnosis.verdict_text import element_text, ended_with, has_message
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation.investigation import Investigation
from aoti_debug.triage.nonfinite.causes import domain_error, overflow_text, reduced_text
from aoti_debug.triage.nonfinite.finding_text import SHOWN

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "true_divide": "/"}


def words(made: Made) -> str:
    """ "aten.div.Tensor: weights[5, 3] = 1.5 / total[5, 0] = 0, a division by zero"."""
    return f"{made.operator}: {_computation(made)}"


def _computation(made: Made) -> str:
    name, exact = made.operator.split(".")[1], float(made.exact)
    values = [float(operand.value) for operand in made.operands if operand.value is not None]
    if made.reduces or not values:
        rows = "; ".join(_row(operand) for operand in made.operands if operand.count > 1)
        text = f"{name} of {rows}" if rows else name
        text += f", with {', '.join(made.sizes)}," if made.sizes else ""
        return reduced_text(text, exact, made.dtype) if math.isfinite(exact) else f"{text} is {made.value}"
    text = _equation(name, made.operands)
    if name == "convert_element_type" and math.isfinite(exact):
        return overflow_text(f"{_operand(made.operands[0])}", made.dtype)
    if math.isfinite(exact):
        return overflow_text(f"{text} = {exact:.6g}", made.dtype)
    return f"{text}, {reason(name, values, exact)}"


def reason(name: str, values: list[float], exact: float) -> str:
    """The reason why an operator gives no finite number for its operands: "a division by zero"."""
    infinite = [value for value in values if math.isinf(value)]
    if name in ("div", "true_divide") and len(values) > 1 and values[1] == 0:
        return "a division by zero" if values[0] else "zero divided by zero"
    if name in ("var", "std") and math.isfinite(values[0]):
        return "the sample variance of one element"
    if name in ("reciprocal", "rsqrt") and values[0] == 0:
        return "a division by zero"
    if name == "mul" and infinite and 0 in values:
        return "zero times infinity"
    if name in ("add", "sub") and len(infinite) > 1 and math.isnan(exact):
        return "the difference of two infinities"
    if name == "pow" and values[0] == 0 and not math.isnan(exact):
        return "a division by zero"
    if name in ("exp", "expm1", "cosh", "sinh", "pow") and not math.isnan(exact) and not infinite:
        return "too large for any number"
    return domain_error(name, values, exact).removeprefix("is ")


def computation(operator: str, operands: tuple[Operand, ...]) -> str:
    """ "ids[3] = 3000 * 1000000"."""
    name = operator.split(".")[1]
    return _call_text(name, operands) if operator.endswith("_mode") else _equation(name, operands)  # it rounds


def _equation(name: str, operands: tuple[Operand, ...]) -> str:
    if name in _SIGNS and len(operands) == 2:
        return f" {_SIGNS[name]} ".join(_operand(operand) for operand in operands)
    return _call_text(name, operands)


def _call_text(name: str, operands: tuple[Operand, ...]) -> str:
    return f"{name}({', '.join(_operand(operand) for operand in operands)})"


def _operand(operand: Operand) -> str:
    text = operand.value or "nan"
    is_exact = text.lstrip("-").isdigit() or text in ("True", "False")
    value = text if is_exact else f"{float(text):.6g}"
    if not operand.name:
        return value
    place = f"[{', '.join(map(str, operand.index))}]" if operand.index else ""
    return f"{operand.name}{place} = {value}"


def _row(operand: Operand) -> str:
    among = [
        f"{count} {word}"
        for count, word in (
            (operand.plus_infinities, "+Inf"),
            (operand.minus_infinities, "-Inf"),
            (operand.zeros, "zero" if operand.zeros == 1 else "zeros"),
        )
        if count
    ]
    return f"{operand.count} elements of {operand.name}" + (f" ({', '.join(among)} among them)" if among else "")


def with_origin(finding: Finding, located: LocatedOrigin) -> Finding:
    """The finding with the operator that made its element non-finite as its origin, and in its headline.

    Where it was shown to come from an input, that stays both.
    """
    if finding.where is None:
        return finding
    origin, line = located.origin, located.line
    made = origin.made
    where = finding.where if line is None else replace(finding.where, frame=line)
    place = replace(where, operator=made.operator)
    sentences = (_sentence(made, line),) + (() if origin.became is None else (f"then {words(origin.became)}",))
    sentences += (located.place,) if located.place else ()
    if finding.origin is not None and not finding.origin.launch:
        input_first = finding.evidence[:SHOWN]
        evidence = (*input_first, *sentences, *finding.evidence[SHOWN:])
        return replace(finding, where=place, evidence=evidence)
    what = f"{finding.what}, made by {made.operator}" if made.reduces else f"{finding.what}: {words(made)}"
    return replace(finding, what=what, where=where, origin=place, evidence=(*sentences, *finding.evidence))


def _sentence(made: Made, line: ModelLine | None) -> str:
    text = f"`{line.text.strip()}`: " if line is not None and line.text.strip() else ""
    return f"{text}{words(made)}"


def with_operand(finding: Finding, located: LocatedOperand) -> Finding:
    """The finding with the numbers at the bad element as its headline, the operator, its model line, and their origin.

    The message of the fault, which names variables of the kernel or a signal, is evidence.
    """
    if finding.where is None:
        return finding
    bad, line = located.bad, located.line
    message = () if has_message(finding) else (ended_with(first_line(finding.what), finding.where),)
    text = f"`{line.text.strip()}`: " if line is not None and line.text.strip() else ""
    sentences = (f"{text}{operand_words(bad)}", *((located.place,) if located.place else ()), *_from_input(located))
    where = finding.where if line is None else replace(finding.where, frame=line)
    found = replace(finding, what=_headline(located), where=where, evidence=(*sentences, *message, *finding.evidence))
    if bad.source is not None and located.input:
        source = bad.source
        origin = Place(
            input=located.input, element=source.element, coordinates=source.index, frame=located.computed_line
        )
        between = tuple(place for place in finding.chain if place.launch and place.launch != where.launch)
        return replace(found, origin=origin, chain=(origin, *between, where))
    if finding.origin is not None and (bad.computed is None or bad.source is not None):
        return found
    if bad.computed is None:
        return replace(found, origin=replace(where, operator=bad.operator))
    made = replace(where, argument="", element=None, operator=bad.computed.operator)
    return replace(found, origin=made if located.computed_line is None else replace(made, frame=located.computed_line))


def _headline(located: LocatedOperand) -> str:
    """The bad element; before it the element of the model's input that makes it, where one does alone."""
    bad, source = located.bad, located.bad.source
    if source is None or not located.input or source.element is None or not source.alone:
        return bad.problem
    if not source.instead:  # it is that element
        return replace(bad, name=located.input, index=source.index).problem
    return f"{element_text(located.input, source.index)} is {source.value}, so {bad.problem}"


def operand_words(bad: BadOperand) -> str:
    """The text of a bad operand, and of what computed it."""
    return bad.text if bad.computed is None else f"{bad.text}; {_computed(bad.computed, bad.value)}"


def _from_input(located: LocatedOperand) -> Iterator[str]:
    """A sentence on the model's input that the bad element comes from, where it is not that element itself."""
    source = located.bad.source
    if source is None or not source.instead or not located.input:
        return
    if source.element is None:
        yield f"it comes from {located.input}: several of its elements together make it"
        return
    text = f"it comes from {element_text(located.input, source.index)}, which is {source.value}"
    yield text + (
        f": with {source.instead} there, the graph gives a number that can be used"
        if source.alone
        else "; other elements make it, too"
    )


def _computed(computed: Computed, value: int) -> str:
    text = f"{computed.operator}: {computation(computed.operator, computed.operands)} = {value}"
    exact = float(computed.exact)
    info = dtypes.of_name(computed.dtype)
    if info is not None and math.isfinite(exact) and exact != value and abs(exact) >= 2.0 ** (8 * info.item_bytes - 1):
        return f"{text}: {exact:.0f} does not fit into {computed.dtype}"
    return text


def with_eager_call(finding: Finding, called: CallInEager) -> Finding:
    """A fault in no launch, with what the exported program does in eager with the same inputs."""
    refusal = called.refusal
    if refusal is None:
        said = "the exported program, called in eager with the inputs of this run, raises nothing"
        return replace(finding, evidence=(said, *finding.evidence))
    possible = (_MAY_BE_OF_EXPORT,) if refusal.operator.startswith("aten._assert") else ()
    return replace(
        finding,
        where=refused_place(refusal, called.line),
        origin=refused_origin(refusal),
        evidence=(*refusal_sentences(refusal, called.line), f"it says: {refusal.words}", *finding.evidence),
        possible=(*possible, *finding.possible),
    )


_MAY_BE_OF_EXPORT = (
    "torch.export may have put the assertion into the program, and the model itself may take these inputs"
)


class Located(Protocol):
    """An answer of the graph."""

    @property
    def operator(self) -> str:
        """The operator that it is about."""


T = TypeVar("T", bound=Located)


def with_graph(
    investigation: Investigation,
    finding: Finding,
    run: RunDir,
    step: str,
    trace: Callable[[Scope, Path], T | None],
    explain: Callable[[Finding, T], Finding],
) -> Finding:
    """The finding with what the graph shows; unchanged where the package holds no graph, or it shows nothing.

    Args:
        run: with the tensors that the launch read.
        step: the name of the step.
        trace: finds it; the folder is for its files.
    """
    if not has_reference(run):
        return finding
    scope = Scope(user_code=investigation.options.user_code)
    try:
        with investigation.steps.step(step) as note:
            found = trace(scope, investigation.repro.parent)
            note.text = "the graph does not show it" if found is None else found.operator
    except AotiDebugError as error:
        return replace(finding, warnings=(*finding.warnings, f"the graph was not evaluated: {first_line(str(error))}"))
    return finding if found is None else explain(finding, found)
