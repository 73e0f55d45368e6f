"""A model against an older one as text."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base import wording
from aoti_debug.package.manifest import Site
from aoti_debug.runs.show import terminal_cells, text
from aoti_debug.runs.show.terminal_cells import Column
from aoti_debug.views.profile.changes import LEAST_CHANGE, Change, Changes, ChangeVerdict
from aoti_debug.views.profile.site_groups import SiteGroup

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
    Column("model line", min_width=12, share=1),
)


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
    lines += terminal_cells.table(COLUMNS, [_row(change, one) for change in [*told, changes.call]], width).lines
    unchanged = len(changes.launches) - len(told)
    lines.append(f"{wording.pluralize(unchanged, 'launch')} without a change of {LEAST_CHANGE:.0%} that is certain")
    for side, alone in (("new", _alone(changes, "new")), ("old", _alone(changes, "old"))):
        if alone:
            lines.append(f"only in the {side} model: {wording.join_truncated(alone, _MAX_LAUNCHES)}")
    return lines


def _sentence(changes: Changes) -> str:
    slower = sum(change.verdict is ChangeVerdict.SLOWER for change in changes.launches)
    faster = sum(change.verdict is ChangeVerdict.FASTER for change in changes.launches)
    found = [
        f"{wording.pluralize(count, 'launch')} {word}"
        for count, word in ((slower, "slower"), (faster, "faster"))
        if count
    ]
    return " and ".join(found) or "no launch has changed"


def _row(change: Change, one: str) -> list[str | terminal_cells.Cell]:
    group = change.group or SiteGroup((), ())
    new, old = group.new, group.old
    return [
        change.verdict.value,
        wording.duration(change.old_seconds),
        wording.duration(change.new_seconds),
        f"{change.ratio - 1:+.1%}",
        f"{change.chance:.1g}",
        _kernels(new) or f"the whole {one}",
        "" if _kernels(old) == _kernels(new) else _kernels(old),
        text.model_line(new[0].provenance) if new else "",
    ]


def _alone(changes: Changes, side: str) -> list[str]:
    found = []
    for change in changes.unpaired:
        assert change.group is not None
        sites, seconds = (change.group.new, change.new) if side == "new" else (change.group.old, change.old)
        found += [f"{site.kernel} ({wording.duration(min(seconds))})" for site in sites]
    return found


def _kernels(sites: Sequence[Site]) -> str:
    return " + ".join(site.kernel for site in sites)
