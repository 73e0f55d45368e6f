"""A finding of values that are not finite, in words."""

from __future__ import annotations

from dataclasses import dataclass

from aoti_debug import wording
from aoti_debug.abi import Phase
from aoti_debug.diagnosis.findings import Finding, FindingKind, Place, place_of
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.nonfinite.observed import Special, Spot, count, left, seen
from aoti_debug.triage.nonfinite.roots import Root, RootKind, Roots
from aoti_debug.triage.nonfinite.sinks import Sink

NONFINITE = FindingKind("nonfinite", "NaN or an infinity that nobody meant", "NOT FINITE", "not finite", "∞")

_MOST_LINES = 3


@dataclass(frozen=True)
class NonfiniteCase:
    """
    Attributes:
        root: what is to blame.
        nan: where NaN arose from its infinity; else the root's own spot.
        sink: the harm.
        also: other roots of the same kind.
    """

    root: Root
    nan: Spot
    sink: Sink
    also: tuple[Root, ...]

    @property
    def path(self) -> tuple[Spot, ...]:
        """From the root to where NaN arose, both included."""
        return (self.root.spot,) if self.nan.key == self.root.spot.key else (*self.root.path, self.nan)


def made(spot: Spot) -> str:
    statistics = left(spot.argument)
    launch = spot.launch
    return (
        f"{launch.id} {launch.kernel} makes {count(statistics, spot.special)} {spot.special.value} in "
        f"{spot.argument.name} ({wording.count(statistics.numel if statistics else 0, 'element')})"
    )


def finding(run: RunDir, roots: Roots, case: NonfiniteCase) -> Finding:
    root, spot = case.root, case.root.spot
    turned = case.nan.key != spot.key
    if root.kind is RootKind.OUTSIDE:
        where = Place(input=root.input, argument=spot.argument.name)
        what = f"{spot.special.value} in {root.input}, which the model is given"
    else:
        where = place_of(spot.launch, spot.argument.name)
        what = f"{spot.special.value} in {spot.argument.name}"
    if turned:
        what += f", which becomes NaN in {case.nan.argument.name}"
    evidence = [*_how(roots, root), *_moment(run, spot.launch)]
    if turned:
        evidence.append(f"{made(case.nan)} of it")
    evidence.append(f"the {case.nan.special.value} {case.sink.how}")
    evidence += [line for line in dict.fromkeys(map(_also, case.also)) if line != _also(root)][:_MOST_LINES]
    chain = tuple(place_of(step.launch, step.argument.name) for step in case.path) if turned else ()
    return Finding(NONFINITE, what, where, tuple(evidence), origin=where if turned else None, chain=chain)


def _how(roots: Roots, root: Root) -> list[str]:
    """How the root is known."""
    launch, argument, special = root.spot.launch, root.spot.argument, root.spot.special
    if root.kind is RootKind.OUTSIDE:
        held = seen(argument, Phase.BEFORE)
        return [
            f"{count(held, special)} of {wording.count(held.numel if held else 0, 'element')} of {root.input} "
            f"{'is' if count(held, special) == 1 else 'are'} {special.value} when {launch.id} {launch.kernel} reads it"
        ]
    if root.kind is RootKind.APPEARED:
        return [f"{argument.name} holds {special.value} before {launch.id}, and no recorded launch had put it there"]
    inputs = roots.inputs(launch, argument)
    finite = [f"{a.name} {_range(a)}" for a in inputs if not any(count(seen(a, Phase.BEFORE), s) for s in Special)]
    infinite = [f"{a.name} {_specials(a)}" for a in inputs if any(count(seen(a, Phase.BEFORE), s) for s in Special)]
    parts = []
    if finite:
        parts.append(f"finite: {', '.join(finite)}")
    if infinite:
        parts.append(f"not finite: {', '.join(infinite)}")
    return [made(root.spot), f"it reads {'; '.join(parts)}" if parts else "it reads no tensor of numbers"]


def _range(argument: Argument) -> str:
    held = seen(argument, Phase.BEFORE)
    if held is None or held.min is None or held.max is None:
        return "(empty)"
    return f"({held.min:.6g} to {held.max:.6g})"


def _specials(argument: Argument) -> str:
    held = seen(argument, Phase.BEFORE)
    return "(" + ", ".join(f"{n} {s.value}" for s in Special if (n := count(held, s))) + ")"


def _moment(run: RunDir, launch: Launch) -> list[str]:
    """When a launch ran, where there is more to say than its number."""
    found = []
    if launch.loops:
        turns = " of ".join(str(turn) for turn in reversed(launch.loops))
        found.append(f"it was in iteration {turns} of the loop (counted from 0)")
    elif launch.site.subgraph:
        found.append(f"it was in the branch {launch.site.subgraph}")
    calls = {other.key.call for other in run.launches if other.key.kind is launch.key.kind}
    if len(calls) > 1 and launch.key.call > min(calls):
        found.append(f"it was in call {launch.key.call} (counted from 0); the calls before did no such harm")
    return found


def _also(root: Root) -> str:
    if root.kind is RootKind.OUTSIDE:
        return f"{root.input} holds {root.spot.special.value}, too"
    return f"{made(root.spot)}, too" if root.kind is RootKind.MADE else f"{root.spot.argument.name} holds NaN, too"
