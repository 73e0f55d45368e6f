"""Finds the launch that produced the first NaN or unintended infinity that does harm.

Level 2 records statistics of what every launch reads and writes. The search goes backwards, from where a non-finite
value does harm (a model output, integers computed from NaN) to the launch that produced it from finite ones, so what a
model handles itself (isnan, nan_to_num, where) is no finding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from aoti_debug.base.abi import Phase
from aoti_debug.base.dtypes import LARGEST, SHARE
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.diagnosis.special_values import (
    INFINITE,
    Occurrence,
    Special,
    count,
    statistics_after,
    statistics_of,
)
from aoti_debug.runs.diagnosis.trace_roots import Root, RootKind, RootSearch
from aoti_debug.runs.rundir.formats.journal_records import TensorStats
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.nonfinite import explain_element as explanation
from aoti_debug.triage.nonfinite import finding_text, harm
from aoti_debug.triage.nonfinite.harm import NonfiniteCase, Sink, TriedCase
from aoti_debug.triage.results.finding_kinds import Infinities

_FAR_BELOW = min(LARGEST.values()) * SHARE / 2  # for any dtype
MAX_WARNINGS = 3  # of values near overflow
_MAX_LINES = 3
_MAX_CASES = 4
_UNTRACED = "but no {} in an output was traced to it"
_HALF = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True)
class NonFinite:
    """The result of the search.

    Attributes:
        finding: None if no non-finite value does harm.
        warnings: other observations, one line each.
        needed: the launches whose saved tensors tell which case it is, and `explain` needs: "0.3".
        cases: what the finding may be, the likeliest first: the finding is of the first one.
    """

    finding: Finding | None
    warnings: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    cases: tuple[NonfiniteCase, ...] = ()


def find(flow: Dataflow, infinities: Infinities) -> NonFinite:
    """Searches a run at level 2 for non-finite values.

    Raises:
        RunDirError: the journal cannot be read.
    """
    run = flow.run
    near = near_overflow_warnings(run.launches.notable())
    roots = RootSearch(flow)
    kinds = roots.values.kinds
    if not kinds:
        return NonFinite(None, near)
    cases = _nan_cases(run, roots) if Special.NAN in kinds else []
    lines: list[str] = []
    if infinities is not Infinities.IGNORE:
        unintended, notes = _unintended_infinities(run, roots, cases[0] if cases else None)
        known = {case.root.occurrence.key for case in cases}
        if not cases and infinities is Infinities.FAIL:
            cases = unintended
        elif unintended and unintended[0].root.occurrence.key not in known:
            lines.append(finding_text.infinite_output(run, unintended[0]))
        lines += notes
    case = cases[0] if cases else None
    handled = _handled(run, roots, case) if Special.NAN in kinds else ()
    warnings = (*near, *handled, *lines[: _MAX_LINES + 1])
    if case is None:
        return NonFinite(None, warnings)
    needed = dict.fromkeys(o.launch.id for case in cases for o in (case.root.occurrence, case.nan))
    return NonFinite(finding_text.finding(run, roots, case), warnings, tuple(needed), tuple(cases))


def finding_of(flow: Dataflow, tried: TriedCase) -> Finding:
    """The finding of a case with what runs without the values of its root have shown."""
    return finding_text.finding(flow.run, RootSearch(flow), tried.case, tried.trial)


def explain(finding: Finding, run: RunDir) -> Finding:
    """The finding with the element, the values that it was computed from and, if they prove it, the cause.

    Args:
        run: a run that saved the tensors of the launches that `find` asked for.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    return explanation.explain(finding, run)


def _nan_cases(run: RunDir, roots: RootSearch) -> list[NonfiniteCase]:
    """The causes that the first harmful NaN may have: an input, an infinity, or the launch that shows it first."""
    output_sinks = harm.harmed_outputs(run, roots, Special.NAN)
    ends = [(sink, root) for sink in output_sinks for root in roots.trace([sink.occurrence])]
    for sink in harm.harmed_integers(roots):
        ends += [
            (sink, root) for root in roots.trace_argument(sink.occurrence.launch, sink.occurrence.argument, Special.NAN)
        ]
    ends.sort(key=lambda end: roots.order(end[1]))
    cases: dict[object, NonfiniteCase] = {}
    for sink, root in ends:
        if len(cases) >= _MAX_CASES:
            break
        others = {o.occurrence.key: o for _, o in ends if o.occurrence.launch.key != root.occurrence.launch.key}
        infinite = _preceding_infinities(roots, root.occurrence) if root.kind is RootKind.PRODUCED else []
        beside = _read_beside(roots, root) if root.kind is RootKind.PRODUCED else []
        for origin in (*infinite, *beside, root):
            case = NonfiniteCase(origin, root.occurrence, sink, tuple(others.values()), is_doubtful=origin in beside)
            cases.setdefault((origin.occurrence.key, root.occurrence.key), case)
    return list(cases.values())


def _preceding_infinities(roots: RootSearch, occurrence: Occurrence) -> list[Root]:
    """The roots of infinities that NaN may have arisen from: those that came in first, those of masks last."""
    found: list[Root] = []
    for special in INFINITE:
        for argument in roots.operands_with(occurrence.launch, occurrence.argument, special):
            found += roots.unintended(roots.trace_argument(occurrence.launch, argument, special))
    return sorted(found, key=lambda root: (roots.is_filled(root), root.kind is not RootKind.EXTERNAL))


def _read_beside(roots: RootSearch, root: Root) -> list[Root]:
    """The roots of what a launch reads that is not finite, but that its result is not known to be computed from.

    They came in with an input or a weight. A kernel that writes the parts of a result one after the other (cat) hides
    what the result is computed from.
    """
    launch, result = root.occurrence.launch, root.occurrence.argument
    operands = {argument.name for argument in roots.operands(launch, result)}
    beside = [argument for argument in launch.args if argument.role is Role.IN and argument.name not in operands]
    return [
        found
        for special in Special
        for argument in beside
        if count(statistics_of(argument, Phase.BEFORE), special)
        for found in roots.trace_argument(launch, argument, special)
        if root.kind is RootKind.PRODUCED and found.kind is RootKind.EXTERNAL and not roots.is_filled(found)
    ]


def _unintended_infinities(
    run: RunDir, roots: RootSearch, case: NonfiniteCase | None
) -> tuple[list[NonfiniteCase], list[str]]:
    """The unintended infinities that do harm, the first one first, and lines on those that do not.

    An infinity does harm if it leaves the model, or if a launch reads a number that overflowed half precision. (-Inf in
    half precision is harmless: a mask filled with the lowest number often becomes -Inf.)
    """
    found: dict[object, NonfiniteCase] = {}
    harmful: set[object] = {occurrence.key for occurrence in case.path} if case else set()
    for special in INFINITE:
        for sink in harm.harmed_outputs(run, roots, special):
            reached = roots.trace([sink.occurrence])
            is_meant = any(root.kind is RootKind.INTENDED or roots.is_filled(root) for root in reached)
            unintended = roots.unintended(reached)
            beside = [other for root in unintended for other in _read_beside(roots, root)]
            for root in (*beside, *unintended):
                if roots.is_filled(root) or (is_meant and root.kind is RootKind.PRODUCED):
                    continue
                harmful |= {occurrence.key for occurrence in root.path}
                candidate = NonfiniteCase(root, root.occurrence, sink, (), is_doubtful=is_meant or root in beside)
                found.setdefault(root.occurrence.key, candidate)
    cases = sorted(found.values(), key=lambda case: (case.root.occurrence.launch.sequence, not case.is_doubtful))
    cases = cases[:_MAX_CASES]
    if not cases:
        overflows = (o for o in _produced(roots, Special.PLUS_INF) if _is_half(o))
        cases = [_overflow(occurrence) for occurrence in itertools.islice(overflows, 1)]
        harmful |= {occurrence.key for overflow in cases for occurrence in overflow.path}
    lines = [
        f"{finding_text.produced(run, occurrence)}, {_UNTRACED.format('infinity')}"
        for special in INFINITE
        for occurrence in _produced(roots, special)
        if occurrence.key not in harmful
    ]
    return cases, lines[:_MAX_LINES]


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
        f"{finding_text.produced(run, occurrence)}, {_UNTRACED.format('NaN')}" for occurrence in harmless[:_MAX_LINES]
    )


def _produced(roots: RootSearch, special: Special) -> Iterable[Occurrence]:
    """The values made by launches from operands without them, and read by another: once a kernel and argument."""
    reported = set()
    for occurrence in roots.values.written[special]:
        launch, argument = occurrence.launch, occurrence.argument
        name = (launch.kernel, argument.name)
        if name not in reported and roots.is_produced(occurrence) and roots.dataflow.readers(launch, argument):
            reported.add(name)
            yield occurrence


def near_overflow_warnings(launches: Iterable[Launch]) -> tuple[str, ...]:
    """One warning for each tensor with a value above half of its dtype's maximum, the closest first.

    The maximum itself does not count: masks are filled with it, and scaled quantization uses it on purpose.
    """
    closest: dict[tuple[str, str], tuple[float, str]] = {}
    for launch in launches:
        if not any(_may_be_near(record) for record in launch.stats):
            continue
        for argument in launch.args:
            extreme = _extreme_value(argument)
            if extreme is None:
                continue
            share, value = extreme
            dtype = argument.layout.dtype if argument.layout else ""
            key = (launch.kernel, argument.name)
            if key not in closest or share > closest[key][0]:
                line = (
                    f"near overflow: {argument.name} of {launch.id} {launch.kernel} holds {value:.6g}, "
                    f"{share:.0%} of the largest {dtype} ({LARGEST[dtype]:.6g})"
                )
                closest[key] = (share, line)
    return tuple(line for _, line in sorted(closest.values(), key=lambda item: -item[0])[:MAX_WARNINGS])


def _may_be_near(record: TensorStats) -> bool:
    """False if no value is large for the tensor's dtype, or the dtype has no such limit."""
    statistics = record.statistics
    if statistics is None or statistics.min is None or statistics.max is None:
        return False
    if statistics.min > -_FAR_BELOW and statistics.max < _FAR_BELOW:
        return False
    return record.layout is None or record.layout.dtype in LARGEST


def _extreme_value(argument: Argument) -> tuple[float, float] | None:
    """(share of the dtype's maximum, value) of the finite value with the largest magnitude."""
    statistics = statistics_after(argument)
    if statistics is None or statistics.min is None or statistics.max is None:
        return None
    low, high = statistics.min, statistics.max
    if low > -_FAR_BELOW and high < _FAR_BELOW:
        return None
    largest = LARGEST.get(argument.layout.dtype) if argument.layout else None
    if largest is None:
        return None
    extremes = (float(low), float(high))
    shares = [(abs(value) / largest, value) for value in extremes if SHARE < abs(value) / largest < 1]
    return max(shares, default=None)
