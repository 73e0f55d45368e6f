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
from aoti_debug.compare.locate_operator import LocatedOperand, LocatedOrigin
from aoti_debug.compare.protocol.bad_elements import BadOperand, Computed, Made, element_text
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation.investigation import Investigation
from aoti_debug.triage.investigation.operator_words import computation, words
from aoti_debug.triage.nonfinite.finding_text import SHOWN


def with_origin(finding: Finding, located: LocatedOrigin) -> Finding:
    """The finding with the operator that made its element non-finite as its origin."""
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
    return replace(finding, where=where, origin=place, evidence=(*sentences, *finding.evidence))


def _sentence(made: Made, line: ModelLine | None) -> str:
    text = f"`{line.text.strip()}`: " if line is not None and line.text.strip() else ""
    return f"{text}{words(made)}"


def with_operand(finding: Finding, located: LocatedOperand) -> Finding:
    """The finding with the operator that failed, its model line, the numbers at the bad element, and their origin."""
    if finding.where is None:
        return finding
    bad, line = located.bad, located.line
    text = f"`{line.text.strip()}`: " if line is not None and line.text.strip() else ""
    sentences = (f"{text}{operand_words(bad)}", *((located.place,) if located.place else ()), *_from_input(located))
    where = finding.where if line is None else replace(finding.where, frame=line)
    found = replace(finding, where=where, evidence=(*sentences, *finding.evidence))
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
