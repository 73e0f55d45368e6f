"""The launches of a model against those of an older one: measured in turn, judged, and as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from enum import Enum
from functools import cache
from pathlib import Path

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.terminal_cells import Column
from aoti_debug.package.manifest import Provenance, Site
from aoti_debug.runs.show.text import place_columns
from aoti_debug.views.profile.device_calls import MeasuredCall
from aoti_debug.views.profile.site_work import SiteGroup

LEAST_CHANGE = 0.05  # in proportion to the old time
_CHANCE = 0.01  # of any false alarm in a comparison
Round = tuple[MeasuredCall, ...]  # the measured calls of one process
_UNKNOWN = "-"
_MAX_LAUNCHES = 10  # launches without a counterpart
COLUMNS = (
    Column("verdict"),
    Column("old", align_right=True),
    Column("new", align_right=True),
    Column("change", align_right=True),
    Column("chance", align_right=True),
    Column("kernel", min_width=16, share=2),
    Column("was", min_width=16, share=2, dropped_below=140),
)


def chance_of_larger(larger: Sequence[float], smaller: Sequence[float]) -> float:
    """The chance that samples of one distribution look at least as much as if the first were larger.

    Args:
        larger, smaller: samples, at least one number each; equal numbers count against the difference.

    Returns:
        A probability: small if the numbers of `larger` are larger.
    """
    wins = sum(x > y for x in larger for y in smaller)
    n, m = len(larger), len(smaller)
    favourable = sum(_arrangements(n, m, count) for count in range(wins, n * m + 1))
    return favourable / math.comb(n + m, n)


@cache
def _arrangements(n: int, m: int, wins: int) -> int:
    """The orders of two samples in which so many pairs have the larger number in the first one."""
    if wins < 0:
        return 0
    if n == 0 or m == 0:
        return int(wins == 0)
    return _arrangements(n - 1, m, wins - m) + _arrangements(n, m - 1, wins)


class ChangeVerdict(str, Enum):
    """The relation of a launch to that of the older model."""

    SLOWER = "slower"
    FASTER = "faster"
    UNCHANGED = "unchanged"  # or not known to have changed


@dataclass(frozen=True)
class Change:
    """The times of launches that compute the same in both models.

    Attributes:
        group: their sites; None for the whole call.
        old, new: seconds, the least of the calls of each round.
        chance: that times of equal launches look so, of one or the other being slower, the lesser.
    """

    group: SiteGroup | None
    old: tuple[float, ...]
    new: tuple[float, ...]
    chance: float
    verdict: ChangeVerdict

    @property
    def old_seconds(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.old)

    @property
    def new_seconds(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.new)

    @property
    def ratio(self) -> float:
        """New to old."""
        return self.new_seconds / self.old_seconds if self.old_seconds else 1.0


_NOTABLE = 0.05  # of a call


@dataclass(frozen=True)
class Changes:
    """A model against an older one.

    Attributes:
        old: the older model.
        rounds: how many processes each model ran in.
        call: of whole calls.
        launches: of launches that both have, in the order of the new model.
        unpaired: launches that only one of them has.
        notes: on how launches were paired.
    """

    old: Path
    rounds: int
    call: Change
    launches: tuple[Change, ...]
    unpaired: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def slower(self) -> tuple[Change, ...]:
        """The launches that have become slower, and the call if it has."""
        return tuple(change for change in (self.call, *self.launches) if change.verdict is ChangeVerdict.SLOWER)


def find_changes(
    old: Path, groups: Sequence[SiteGroup], rounds: Sequence[tuple[Round, Round]], notes: tuple[str, ...] = ()
) -> Changes:
    """Compares the launches of two models.

    A change counts if it is at least LEAST_CHANGE and a rank test over the rounds leaves it to chance with a
    probability of at most one percent, divided by the number of comparisons.

    Args:
        rounds: the calls of the old and of the new model, measured in turn.
    """
    paired = [group for group in groups if group.is_paired]
    allowed = _CHANCE / (2 * (len(paired) + 1))  # two directions each
    if allowed < 1 / math.comb(2 * len(rounds), len(rounds)):
        few, many = wording.pluralize(len(rounds), "round"), wording.pluralize(len(paired), "launch")
        notes = (*notes, f"no change can be certain: {few} are too few for {many}")
    return Changes(
        old,
        len(rounds),
        _change(None, rounds, allowed),
        tuple(_change(group, rounds, allowed) for group in paired),
        tuple(_change(group, rounds, 0.0) for group in groups if not group.is_paired),
        notes,
    )


def _change(group: SiteGroup | None, rounds: Sequence[tuple[Round, Round]], allowed: float) -> Change:
    old = tuple(_least(calls, None if group is None else [site.id for site in group.old]) for calls, _ in rounds)
    new = tuple(_least(calls, None if group is None else [site.id for site in group.new]) for _, calls in rounds)
    slower, faster = chance_of_larger(new, old), chance_of_larger(old, new)
    found = Change(group, old, new, min(slower, faster), ChangeVerdict.UNCHANGED)
    is_certain = found.chance <= allowed
    if is_certain and slower < faster and found.ratio >= 1 + LEAST_CHANGE:
        return Change(group, old, new, slower, ChangeVerdict.SLOWER)
    if is_certain and faster < slower and found.ratio <= 1 / (1 + LEAST_CHANGE):
        return Change(group, old, new, faster, ChangeVerdict.FASTER)
    return found


def _least(calls: Round, sites: Sequence[int] | None) -> float:
    """The least seconds of calls, or of the launches of sites in one: what disturbs a launch only makes it longer."""
    if sites is None:
        return min(call.wall_ns for call in calls) * 1e-9
    return min(sum(call.launches_ns.get(site, 0) for site in sites) for call in calls) * 1e-9


def change_lines(changes: Changes, one: str, width: int) -> list[str]:
    """The launches that are slower or faster than those of an older model, and what they amount to.

    Args:
        one: the word for what was measured: "call".
    """
    told = [change for change in changes.launches if change.verdict is not ChangeVerdict.UNCHANGED]
    told.sort(key=lambda change: change.old_seconds - change.new_seconds)
    lines = [
        f"against {changes.old.name}, in {changes.rounds} rounds: {_sentence(changes)}",
        *(f"note: {note}" for note in changes.notes),
    ]
    shown = [*told, changes.call]
    places = place_columns(_provenance(change) for change in shown)
    rows = [[*_row(change, one), *places.cells(_provenance(change))] for change in shown]
    lines += terminal_cells.table((*COLUMNS, *places.columns), rows, width).lines_and_hidden(width)
    unchanged = len(changes.launches) - len(told)
    lines.append(f"{wording.pluralize(unchanged, 'launch')} without a change of {LEAST_CHANGE:.0%} that is certain")
    for side, alone in (("new", _alone(changes, "new")), ("old", _alone(changes, "old"))):
        if alone:
            listed = [f"{kernel} ({wording.duration(seconds)})" for kernel, seconds in alone]
            lines.append(f"only in the {side} model: {wording.join_truncated(listed, _MAX_LAUNCHES)}")
    return lines


def _sentence(changes: Changes) -> str:
    slower = sum(change.verdict is ChangeVerdict.SLOWER for change in changes.launches)
    faster = sum(change.verdict is ChangeVerdict.FASTER for change in changes.launches)
    found = [
        f"{wording.pluralize(count, 'launch')} {word}"
        for count, word in ((slower, "slower"), (faster, "faster"))
        if count
    ]
    said = " and ".join(found) or "no launch that both have is certain to have changed"
    return "; ".join([said, *_alone_text(changes, "new"), *_alone_text(changes, "old")])


def _alone_text(changes: Changes, side: str) -> list[str]:
    """ "2 launches only in the new one, the longest mine::op.default: 3.91 ms of 4.52 ms"; none without any."""
    found = _alone(changes, side)
    if not found:
        return []
    call = min(changes.call.new if side == "new" else changes.call.old)
    text = f"{wording.pluralize(len(found), 'launch')} only in the {side} one"
    if side == "old" or found[0][1] < _NOTABLE * call:
        return [text]
    kernel, seconds = found[0]
    longest = ", the longest" if len(found) > 1 else ","
    return [f"{text}{longest} {kernel}: {wording.duration(seconds)} of {wording.duration(call)}"]


def _row(change: Change, one: str) -> list[str | terminal_cells.Cell]:
    group = change.group or SiteGroup((), ())
    new, old = group.new, group.old
    return [
        "not certain" if change.verdict is ChangeVerdict.UNCHANGED else change.verdict.value,
        wording.duration(change.old_seconds),
        wording.duration(change.new_seconds),
        f"{change.ratio - 1:+.1%}",
        f"{change.chance:.1g}",
        _kernels(new) or f"the whole {one}",
        "" if _kernels(old) == _kernels(new) else _kernels(old),
    ]


def _provenance(change: Change) -> Provenance | None:
    """The origin of the new launches; None for the whole call."""
    return change.group.new[0].provenance if change.group is not None and change.group.new else None


def _alone(changes: Changes, side: str) -> list[tuple[str, float]]:
    """The kernels that only one model launches, with their least seconds, the longest first."""
    found = []
    for change in changes.unpaired:
        assert change.group is not None
        sites, seconds = (change.group.new, change.new) if side == "new" else (change.group.old, change.old)
        found += [(site.kernel, min(seconds)) for site in sites]
    return sorted(found, key=lambda one: -one[1])


def _kernels(sites: Sequence[Site]) -> str:
    return " + ".join(site.kernel for site in sites)
