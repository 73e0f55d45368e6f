"""NaN and infinities: which launch made the first one that matters.

Level 2 tells what every launch read and left. The search goes backwards, from where a value that is not finite does
harm (a model output, integers made of NaN) to the launch that made it of finite ones, so what a model handles itself
(isnan, nan_to_num, where) is no finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aoti_debug.abi import Phase
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.diagnosis.findings import Finding
from aoti_debug.manifest import Role
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Launch
from aoti_debug.triage.nonfinite import explain as telling
from aoti_debug.triage.nonfinite import finding_text, near_overflow, sinks
from aoti_debug.triage.nonfinite.finding_text import NonfiniteCase
from aoti_debug.triage.nonfinite.infinities import Infinities
from aoti_debug.triage.nonfinite.observed import INFINITE, Special, Spot, count, left, seen
from aoti_debug.triage.nonfinite.roots import Root, RootKind, Roots
from aoti_debug.triage.nonfinite.sinks import Sink

_MOST_LINES = 3
_HALF = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True)
class NonFinite:
    """
    Attributes:
        finding: None where nothing that is not finite does harm.
        warnings: what else was seen, one line each.
        needed: the launches whose tensors tell more: "0.3".
    """

    finding: Finding | None
    warnings: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


def find(flow: Dataflow, infinities: Infinities) -> NonFinite:
    """What is not finite in a run at level 2.

    Raises:
        RunDirError: the journal cannot be read.
    """
    run = flow.run
    near = near_overflow.warnings(run.launches)
    kinds = {special for launch in run.launches for special in Special if _holds(launch, special)}
    if not kinds:
        return NonFinite(None, near)
    roots = Roots(flow)
    case = _nan(run, roots) if Special.NAN in kinds else None
    lines: list[str] = []
    if infinities is not Infinities.IGNORE:
        accident, notes = _accidents(run, roots, case)
        if case is None and infinities is Infinities.FAIL:
            case = accident
        elif accident is not None and (case is None or accident.root.spot.key != case.root.spot.key):
            lines.append(f"{finding_text.made(accident.root.spot)} {accident.sink.how}")
        lines += notes
    handled = _handled(run, roots, case) if Special.NAN in kinds else ()
    warnings = (*near, *handled, *lines[: _MOST_LINES + 1])
    if case is None:
        return NonFinite(None, warnings)
    needed = dict.fromkeys(spot.launch.id for spot in (case.root.spot, case.nan))
    return NonFinite(finding_text.finding(run, roots, case), warnings, tuple(needed))


def explain(finding: Finding, run: RunDir) -> Finding:
    """The finding with the element, its inputs' values there and, where they prove it, the cause.

    Args:
        run: a run that saved the tensors of the launches that `find` asked for.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    return telling.explain(finding, run)


def _holds(launch: Launch, special: Special) -> bool:
    return any(
        count(seen(a, Phase.BEFORE) if a.role is Role.IN else None, special) or count(left(a), special)
        for a in launch.args
    )


def _nan(run: RunDir, roots: Roots) -> NonfiniteCase | None:
    """The first NaN that does harm, or the infinity that it came from."""
    found = sinks.outputs(run, roots, Special.NAN)
    ends = [(sink, root) for sink in found for root in roots.of([sink.spot])]
    for sink in sinks.integers(run, roots):
        ends += [(sink, root) for root in roots.of_read(sink.spot.launch, sink.spot.argument, Special.NAN)]
    if not ends:
        return None
    order = {launch.key: position for position, launch in enumerate(run.launches)}
    ends.sort(key=lambda end: (order[end[1].spot.launch.key], end[1].kind is RootKind.MADE))
    sink, root = ends[0]
    others = {other.spot.key: other for _, other in ends[1:] if other.spot.launch.key != root.spot.launch.key}
    also = tuple(others.values())
    if root.kind is RootKind.MADE and (infinite := _infinite_before(roots, root.spot)) is not None:
        return NonfiniteCase(infinite, root.spot, sink, also)
    return NonfiniteCase(root, root.spot, sink, also)


def _infinite_before(roots: Roots, spot: Spot) -> Root | None:
    """Who made, by accident, an infinity that NaN arose from."""
    found: list[Root] = []
    for special in INFINITE:
        for argument in roots.feeding(spot.launch, spot.argument, special):
            found += _accidental(roots.of_read(spot.launch, argument, special))
    return found[0] if found else None


def _accidental(found: list[Root]) -> list[Root]:
    """The roots of an infinity that nobody meant; none where one that was meant, or came in, explains it."""
    if any(root.kind in (RootKind.MEANT, RootKind.OUTSIDE) for root in found):
        return []
    return [root for root in found if root.kind is RootKind.MADE]


def _accidents(run: RunDir, roots: Roots, case: NonfiniteCase | None) -> tuple[NonfiniteCase | None, list[str]]:
    """The first accidental infinity that does harm, and lines on those that do not.

    It does where it leaves the model, and where a launch reads a number that was too large for half precision. (-Inf
    there is what a mask of the lowest number often becomes, and does none.)
    """
    worst: NonfiniteCase | None = None
    harmful: set[object] = {spot.key for spot in case.path} if case else set()
    for special in INFINITE:
        for sink in sinks.outputs(run, roots, special):
            for root in _accidental(roots.of([sink.spot])):
                harmful |= {spot.key for spot in root.path}
                if worst is None or root.spot.launch.sequence < worst.root.spot.launch.sequence:
                    worst = NonfiniteCase(root, root.spot, sink, ())
    if worst is None:
        worst = next((_overflow(spot) for spot in _born(run, roots, Special.PLUS) if _is_half(spot)), None)
        harmful |= {spot.key for spot in worst.path} if worst is not None else set()
    lines = [
        f"{finding_text.made(spot)}, and no output is infinite for it"
        for special in INFINITE
        for spot in _born(run, roots, special)
        if spot.key not in harmful
    ]
    return worst, lines[:_MOST_LINES]


def _is_half(spot: Spot) -> bool:
    layout = spot.argument.layout
    return layout is not None and layout.dtype in _HALF


def _overflow(spot: Spot) -> NonfiniteCase:
    """The case of a number that was too large for its dtype, and that a later launch reads."""
    root = Root(RootKind.MADE, spot, "", (spot,))
    return NonfiniteCase(root, spot, Sink(spot, "stands for a number that was too large; later launches read it"), ())


def _handled(run: RunDir, roots: Roots, case: NonfiniteCase | None) -> tuple[str, ...]:
    """Lines on NaN that does no harm."""
    harmful = {spot.launch.key for spot in (*case.path, *(root.spot for root in case.also))} if case else set()
    born = [spot for spot in _born(run, roots, Special.NAN) if spot.launch.key not in harmful]
    return tuple(f"{finding_text.made(spot)}, and the model deals with it" for spot in born[:_MOST_LINES])


def _born(run: RunDir, roots: Roots, special: Special) -> Iterable[Spot]:
    """What launches made of inputs without it, one a kernel and argument, where another launch reads it."""
    known = set()
    for launch in run.launches:
        for argument in launch.args:
            name = (launch.kernel, argument.name)
            if name in known or not count(left(argument), special):
                continue
            spot = Spot(launch, argument, special)
            if roots.is_made(spot) and roots.dataflow.readers(launch, argument):
                known.add(name)
                yield spot
