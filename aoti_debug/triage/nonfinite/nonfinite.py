"""Finds the launch that produced the first NaN or unintended infinity that does harm.

Level 2 records statistics of what every launch reads and writes. The search goes backwards, from where a non-finite
value does harm (a model output, integers computed from NaN) to the launch that produced it from finite ones, so what a
model handles itself (isnan, nan_to_num, where) is no finding.
"""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.diagnosis.findings import Finding
from aoti_debug.lazy.dataclass import dataclass
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.triage.nonfinite import explain_element as explanation
from aoti_debug.triage.nonfinite import finding_text, harmful_sinks, near_overflow
from aoti_debug.triage.nonfinite.finding_text import NonfiniteCase
from aoti_debug.triage.nonfinite.harmful_sinks import Sink
from aoti_debug.triage.nonfinite.infinities import Infinities
from aoti_debug.triage.nonfinite.observed_values import (
    INFINITE,
    Occurrence,
    Special,
)
from aoti_debug.triage.nonfinite.trace_roots import Root, RootKind, RootSearch

_MOST_LINES = 3
_HALF = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True)
class NonFinite:
    """The result of the search.

    Attributes:
        finding: None if no non-finite value does harm.
        warnings: other observations, one line each.
        needed: the launches whose saved tensors `explain` needs: "0.3".
    """

    finding: Finding | None
    warnings: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


def find(flow: Dataflow, infinities: Infinities) -> NonFinite:
    """Searches a run at level 2 for non-finite values.

    Raises:
        RunDirError: the journal cannot be read.
    """
    run = flow.run
    near = near_overflow.warnings(run.launches)
    roots = RootSearch(flow)
    kinds = roots.values.kinds
    if not kinds:
        return NonFinite(None, near)
    case = _nan_case(run, roots) if Special.NAN in kinds else None
    lines: list[str] = []
    if infinities is not Infinities.IGNORE:
        unintended, notes = _unintended_infinities(run, roots, case)
        if case is None and infinities is Infinities.FAIL:
            case = unintended
        elif unintended is not None and (case is None or unintended.root.occurrence.key != case.root.occurrence.key):
            lines.append(f"{finding_text.produced(unintended.root.occurrence)}, which {unintended.sink.harm}")
        lines += notes
    handled = _handled(run, roots, case) if Special.NAN in kinds else ()
    warnings = (*near, *handled, *lines[: _MOST_LINES + 1])
    if case is None:
        return NonFinite(None, warnings)
    needed = dict.fromkeys(occurrence.launch.id for occurrence in (case.root.occurrence, case.nan))
    return NonFinite(finding_text.finding(run, roots, case), warnings, tuple(needed))


def explain(finding: Finding, run: RunDir) -> Finding:
    """The finding with the element, the values that it was computed from and, if they prove it, the cause.

    Args:
        run: a run that saved the tensors of the launches that `find` asked for.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    return explanation.explain(finding, run)


def _nan_case(run: RunDir, roots: RootSearch) -> NonfiniteCase | None:
    """The case of the first NaN that does harm, or of the infinity that it came from."""
    output_sinks = harmful_sinks.outputs(run, roots, Special.NAN)
    ends = [(sink, root) for sink in output_sinks for root in roots.trace([sink.occurrence])]
    for sink in harmful_sinks.integers(roots):
        ends += [
            (sink, root) for root in roots.trace_argument(sink.occurrence.launch, sink.occurrence.argument, Special.NAN)
        ]
    if not ends:
        return None
    ends.sort(key=lambda end: (roots.order[end[1].occurrence.launch.key], end[1].kind is RootKind.PRODUCED))
    sink, root = ends[0]
    others = {o.occurrence.key: o for _, o in ends[1:] if o.occurrence.launch.key != root.occurrence.launch.key}
    if root.kind is RootKind.PRODUCED and (infinite := _preceding_infinity(roots, root.occurrence)) is not None:
        return NonfiniteCase(infinite, root.occurrence, sink, tuple(others.values()))
    return NonfiniteCase(root, root.occurrence, sink, tuple(others.values()))


def _preceding_infinity(roots: RootSearch, occurrence: Occurrence) -> Root | None:
    """The root of an unintended infinity that NaN arose from."""
    infinite_roots: list[Root] = []
    for special in INFINITE:
        for argument in roots.operands_with(occurrence.launch, occurrence.argument, special):
            infinite_roots += _unintended(roots.trace_argument(occurrence.launch, argument, special))
    return infinite_roots[0] if infinite_roots else None


def _unintended(roots: list[Root]) -> list[Root]:
    """The launches that produced an infinity; none if an intended or an external infinity explains it."""
    if any(root.kind in (RootKind.INTENDED, RootKind.EXTERNAL) for root in roots):
        return []
    return [root for root in roots if root.kind is RootKind.PRODUCED]


def _unintended_infinities(
    run: RunDir, roots: RootSearch, case: NonfiniteCase | None
) -> tuple[NonfiniteCase | None, list[str]]:
    """The first unintended infinity that does harm, and lines on those that do not.

    An infinity does harm if it leaves the model, or if a launch reads a number that overflowed half precision. (-Inf in
    half precision is harmless: a mask filled with the lowest number often becomes -Inf.)
    """
    first: NonfiniteCase | None = None
    harmful: set[object] = {occurrence.key for occurrence in case.path} if case else set()
    for special in INFINITE:
        for sink in harmful_sinks.outputs(run, roots, special):
            for root in _unintended(roots.trace([sink.occurrence])):
                harmful |= {occurrence.key for occurrence in root.path}
                if first is None or root.occurrence.launch.sequence < first.root.occurrence.launch.sequence:
                    first = NonfiniteCase(root, root.occurrence, sink, ())
    if first is None:
        first = next(
            (_overflow(occurrence) for occurrence in _produced(roots, Special.PLUS_INF) if _is_half(occurrence)),
            None,
        )
        harmful |= {occurrence.key for occurrence in first.path} if first is not None else set()
    lines = [
        f"{finding_text.produced(occurrence)}, but no output becomes infinite because of it"
        for special in INFINITE
        for occurrence in _produced(roots, special)
        if occurrence.key not in harmful
    ]
    return first, lines[:_MOST_LINES]


def _is_half(occurrence: Occurrence) -> bool:
    layout = occurrence.argument.layout
    return layout is not None and layout.dtype in _HALF


def _overflow(occurrence: Occurrence) -> NonfiniteCase:
    """The case of an overflow that a later launch reads."""
    root = Root(RootKind.PRODUCED, occurrence, "", (occurrence,))
    return NonfiniteCase(
        root, occurrence, Sink(occurrence, "is the result of an overflow, and later launches read it"), ()
    )


def _handled(run: RunDir, roots: RootSearch, case: NonfiniteCase | None) -> tuple[str, ...]:
    """Lines about NaN that does no harm."""
    harmful = (
        {occurrence.launch.key for occurrence in (*case.path, *(root.occurrence for root in case.other_roots))}
        if case
        else set()
    )
    harmless = [occurrence for occurrence in _produced(roots, Special.NAN) if occurrence.launch.key not in harmful]
    return tuple(
        f"{finding_text.produced(occurrence)}, but the model handles it" for occurrence in harmless[:_MOST_LINES]
    )


def _produced(roots: RootSearch, special: Special) -> Iterable[Occurrence]:
    """What launches produced from operands without it and another launch reads, once for each kernel and argument."""
    reported = set()
    for occurrence in roots.values.written[special]:
        launch, argument = occurrence.launch, occurrence.argument
        name = (launch.kernel, argument.name)
        if name not in reported and roots.is_produced(occurrence) and roots.dataflow.readers(launch, argument):
            reported.add(name)
            yield occurrence
