"""The operator of the model's graph that cannot use an operand, in words: an index out of bounds, a zero divisor."""

from __future__ import annotations

import math
from dataclasses import replace

from aoti_debug import dtypes
from aoti_debug.compare.locate.operand import LocatedOperand
from aoti_debug.compare.protocol.bad_operand import BadOperand, Computed
from aoti_debug.diagnosis.findings import Finding
from aoti_debug.triage.nonfinite.graph_operator import computation


def with_operand(finding: Finding, located: LocatedOperand) -> Finding:
    """The finding with the operator that failed, its model line, and the numbers at the bad element."""
    if finding.where is None:
        return finding
    bad, line = located.bad, located.line
    text = f"`{line.text.strip()}`: " if line is not None and line.text.strip() else ""
    sentences = (f"{text}{words(bad)}", *((located.place,) if located.place else ()))
    where = finding.where if line is None else replace(finding.where, frame=line)
    origin = finding.origin
    if origin is None:
        origin = replace(where, operator=bad.operator)
    elif bad.computed is not None and located.computed_line is not None and origin.launch == where.launch:
        origin = replace(origin, frame=located.computed_line, operator=bad.computed.operator)
    return replace(finding, where=where, origin=origin, evidence=(*sentences, *finding.evidence))


def words(bad: BadOperand) -> str:
    """ "aten.index.Tensor: index[5] is 1000000, table has 1000 rows"."""
    place = f"[{', '.join(map(str, bad.index))}]" if bad.index else ""
    text = f"{bad.operator}: {bad.name}{place} is {bad.value}"
    if bad.table:
        rows = f"{bad.size} rows" if bad.dimension == 0 else f"size {bad.size} in dimension {bad.dimension}"
        text += f", {bad.table} has {rows}"
    text += f" ({bad.count} elements are bad)" if bad.count > 1 else ""
    return text if bad.computed is None else f"{text}; {_computed(bad.computed, bad.value)}"


def _computed(computed: Computed, value: int) -> str:
    text = f"{computed.operator}: {computation(computed.operator, computed.operands)} = {value}"
    exact = float(computed.exact)
    info = dtypes.of_name(computed.dtype)
    if info is not None and math.isfinite(exact) and exact != value and abs(exact) >= 2.0 ** (8 * info.item_bytes - 1):
        return f"{text}: {exact:.0f} does not fit into {computed.dtype}"
    return text
