"""Parts of a start that are likely to show a finding: they are tried before it is cut in halves."""

from __future__ import annotations

from collections.abc import Iterator

from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.minify.scripts.check import Check
from aoti_debug.triage.minify.start.start import Start, Unit


def likely_parts(start: Start, check: Check, finding: Finding) -> Iterator[tuple[Unit, ...]]:
    """Yields single calls, these with the calls that they read, and the whole start, each once.

    Likely is a call that fails in eager, one that makes what is not finite, and the operator that the finding names.
    """
    parts: dict[tuple[Unit, ...], None] = {}
    for name in _suspects(start, check, finding):
        unit = next((unit for unit in start.units if name in unit), None)
        if unit is not None:
            parts[(unit,)] = parts[_with_sources(start, unit)] = None
    yield from dict.fromkeys((*parts, start.units))


def _with_sources(start: Start, unit: Unit) -> tuple[Unit, ...]:
    """A call with those of the start that it reads."""
    sources = {source for name in unit for source in start.graph.by_name[name].inputs}
    return tuple(other for other in start.units if other == unit or sources.intersection(other))


def _suspects(start: Start, check: Check, finding: Finding) -> Iterator[str]:
    """The names of likely calls."""
    if start.failing:
        yield start.failing
    if check in (Check.NAN, Check.INFINITY):
        bad = (line for line in start.lines if line.file and (line.has_nan or line.has_infinity))
        yield from (line.after or line.node for line in bad)
        return
    places = (finding.origin, finding.where)
    operators = {place.operator for place in places if place is not None and place.operator}
    yield from (node.name for node in start.graph.nodes if node.target in operators)
