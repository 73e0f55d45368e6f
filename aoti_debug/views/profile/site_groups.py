"""Launch sites of two packages that compute the same values of the program."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.base.abi import CallKind
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.diff.diff_runs import pair_runs
from aoti_debug.package.manifest import Site
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch


@dataclass(frozen=True)
class SiteGroup:
    """Sites of the old and of the new package that compute the same: one of each, or several where fusion differs.

    Attributes:
        old, new: in the order of their ids; one of both is empty for a launch without a counterpart.
    """

    old: tuple[Site, ...]
    new: tuple[Site, ...]

    @property
    def is_paired(self) -> bool:
        """True if both packages have launches in it."""
        return bool(self.old and self.new)


def site_groups(old: RunDir, new: RunDir) -> tuple[tuple[SiteGroup, ...], tuple[str, ...]]:
    """Groups the launch sites of two runs.

    Returns:
        The groups in the order of the new package, and notes on how they were found.

    Raises:
        UsageError: the runs are of programs that take other inputs.
    """
    pairing, notes = pair_runs(old, new)
    groups: list[tuple[set[int], set[int]]] = []
    for pair in pairing.pairs:
        if pair.launch.key.kind is CallKind.MODEL:
            _join(groups, {launch.site.id for launch in pair.counterparts}, {pair.launch.site.id})
    alone_old, alone_new = _sites(pairing.only_a), _sites(pairing.only_b)
    for site in alone_old - {id_ for group in groups for id_ in group[0]}:
        groups.append(({site}, set()))
    for site in alone_new - {id_ for group in groups for id_ in group[1]}:
        groups.append((set(), {site}))
    groups.sort(key=lambda group: (min(group[1], default=len(new.manifest.sites)), min(group[0], default=0)))
    found = tuple(
        SiteGroup(tuple(old.manifest.sites[i] for i in sorted(a)), tuple(new.manifest.sites[i] for i in sorted(b)))
        for a, b in groups
    )
    return found, notes


def _join(groups: list[tuple[set[int], set[int]]], old: set[int], new: set[int]) -> None:
    """Adds sites to the groups; groups that have one of them become one."""
    touched = [group for group in groups if group[0] & old or group[1] & new]
    for group in touched:
        groups.remove(group)
        old |= group[0]
        new |= group[1]
    groups.append((old, new))


def _sites(launches: Iterable[Launch]) -> set[int]:
    return {launch.site.id for launch in launches if launch.key.kind is CallKind.MODEL}
