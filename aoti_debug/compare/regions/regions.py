"""The regions of a run: for each launch, what the graph computes between what it reads and what it writes."""

from __future__ import annotations

from dataclasses import field

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.protocol.request import Region
from aoti_debug.compare.regions.finder import NotClosedError, RegionFinder
from aoti_debug.compare.regions.recorded_values import RecordedValues, frame_of
from aoti_debug.package.reference.program import Reference
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch, LaunchStatus

UNRETURNED = {  # why a launch is not comparable, by its status
    LaunchStatus.OPEN: "it never returned",
    LaunchStatus.FAILED: "it failed",
    LaunchStatus.NOT_STARTED: "its grid is empty: it was not started",
}


@dataclass(frozen=True)
class Uncovered:
    """A launch whose outputs are not compared.

    Attributes:
        reason: "no node holds what it writes".
    """

    launch: str
    reason: str


@dataclass(frozen=True)
class Regions:
    """The regions of a run, and the launches without one, in order of the launches.

    Attributes:
        inside: launches that are part of later launches' regions only: nothing that they write holds a node's value.
        silent: launches that write no tensor.
        values: what each launch reads and writes.
    """

    regions: tuple[Region, ...]
    uncovered: tuple[Uncovered, ...]
    inside: frozenset[str]
    silent: frozenset[str]
    values: RecordedValues = field(repr=False, compare=False)


def find_regions(run: RunDir, reference: Reference) -> Regions:
    """Finds the region of every launch of a run at level 1."""
    finder = RegionFinder(run, reference)
    regions: list[Region] = []
    uncovered: list[Uncovered] = []
    silent: set[str] = set()
    for launch in run.launches:
        if launch.status is not LaunchStatus.RETURNED:
            uncovered.append(Uncovered(launch.id, UNRETURNED[launch.status]))
        elif not finder.values.writes[launch.key]:
            silent.add(launch.id)
        else:
            try:
                regions.append(finder.region(launch))
            except NotClosedError as error:
                uncovered.append(Uncovered(launch.id, str(error)))
    inside = {id_ for region in regions for id_ in region.launches} - {region.launch for region in regions}
    remaining = tuple(launch for launch in uncovered if launch.launch not in inside)
    return Regions(tuple(regions), remaining, frozenset(inside), frozenset(silent), finder.values)


def find_region(run: RunDir, reference: Reference, launch: Launch) -> Region | None:
    """Finds the region of one launch of a run at level 1; None if it has none."""
    finder = RegionFinder(run, reference, frame_of(launch))
    if launch.status is not LaunchStatus.RETURNED or not finder.values.writes[launch.key]:
        return None
    try:
        return finder.region(launch)
    except NotClosedError:
        return None
