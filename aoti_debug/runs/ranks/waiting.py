"""The ranks that wait, and for which others."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.ranks.rank_progress import End
from aoti_debug.runs.ranks.ranks_run import RankRun
from aoti_debug.runs.rundir.timeline import Launch


@dataclass(frozen=True)
class Waiting:
    """Ranks that wait in the same launch.

    Attributes:
        launch: a collective.
        ranks: numbers of those that wait in it.
        missing: numbers of the ranks of the same program that have not begun it, and of those without a run.
    """

    launch: Launch
    ranks: tuple[int, ...]
    missing: tuple[int, ...]


def waiting(ranks: Sequence[RankRun]) -> tuple[Waiting, ...]:
    """The ranks that were within a collective when they ended, or are, by launch.

    Args:
        ranks: all of them.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    waits: dict[tuple[str, str], list[RankRun]] = {}
    for rank in ranks:
        progress = rank.progress
        if progress.current is not None and progress.is_in_collective and progress.end is not End.FINISHED:
            waits.setdefault((rank.program, progress.current.id), []).append(rank)
    found = []
    for (program, _), members in waits.items():
        launch = members[0].progress.current
        assert launch is not None
        place = (launch.key.call, launch.key.launch, 0)
        missing = tuple(r.number for r in ranks if r.program in (program, "") and r.progress.position < place)
        found.append(Waiting(launch, tuple(rank.number for rank in members), missing))
    return tuple(found)
