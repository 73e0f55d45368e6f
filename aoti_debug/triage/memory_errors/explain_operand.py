"""The operator of the model's graph that cannot use an operand, in words: an index out of bounds, a zero divisor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from aoti_debug.base import dtypes
from aoti_debug.compare.locate_operator import LocatedOperand
from aoti_debug.compare.protocol.bad_elements import BadOperand, Computed, element_text
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.triage.nonfinite.graph_operator import computation


def with_operand(finding: Finding, located: LocatedOperand) -> Finding:
    """The finding with the operator that failed, its model line, the numbers at the bad element, and their origin."""
    if finding.where is None:
        return finding
    bad, line = located.bad, located.line
    text = f"`{line.text.strip()}`: " if line is not None and line.text.strip() else ""
    sentences = (f"{text}{words(bad)}", *((located.place,) if located.place else ()), *_from_input(located))
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


def words(bad: BadOperand) -> str:
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
