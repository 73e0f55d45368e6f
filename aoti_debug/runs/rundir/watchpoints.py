"""The watchpoints of a run: how often each was hit, and the hits that were recorded one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from aoti_debug.base.abi import Phase, WatchAction, WatchStatistic
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest, Site
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey, WatchCountRecord, WatchHitRecord, WatchRecord

WatchpointRecord: TypeAlias = WatchRecord | WatchHitRecord | WatchCountRecord


@dataclass(frozen=True)
class WatchHit:
    """A condition that held.

    Attributes:
        argument: the tensor's name in the launch.
        statistic: of the comparison that held.
        element: the row-major index of an element that made it hold; None if none can be named.
        value: of that element, otherwise of the statistic.
        number: of the watchpoint's hits, from 1.
        replay: of the CUDA graph that captured the call, from 1; None if the call was not captured.
        actions: what was done.
    """

    key: LaunchKey
    site: Site
    argument: str
    phase: Phase
    statistic: WatchStatistic
    element: int | None
    value: float
    number: int
    replay: int | None
    actions: WatchAction
    thread: int


@dataclass(frozen=True)
class Watchpoint:
    """A watchpoint of a run.

    Attributes:
        text: as it was written: "buf7: absmax > 1e4".
        hits: how often its condition held; of a process that was killed, up to the last power of two.
        evaluated: how often it was looked at.
        unread: how often the device could not read the tensor.
        recorded: the first hits, one by one.
    """

    text: str
    hits: int
    evaluated: int
    unread: int
    recorded: tuple[WatchHit, ...]

    @property
    def stopped(self) -> WatchHit | None:
        """The hit that ended the run; None if none did."""
        return next((hit for hit in self.recorded if hit.actions & WatchAction.STOP), None)


def join(ordered: Iterable[WatchpointRecord], manifest: Manifest) -> tuple[Watchpoint, ...]:
    """The watchpoints of records that are ordered by time.

    Raises:
        RunDirError: a record names a site or an argument that the manifest does not have.
    """
    texts: dict[int, str] = {}
    counts: dict[int, WatchCountRecord] = {}
    hits: dict[int, list[WatchHit]] = {}
    for record in ordered:
        match record:
            case WatchRecord():
                texts[record.watch] = record.text
            case WatchCountRecord():
                counts[record.watch] = record
            case WatchHitRecord():
                hits.setdefault(record.watch, []).append(_hit(record, manifest))
    found = []
    for watch, text in sorted(texts.items()):
        recorded, count = tuple(hits.get(watch, ())), counts.get(watch)
        total = max([0 if count is None else count.hits, *(hit.number for hit in recorded)])
        evaluated, unread = (0, 0) if count is None else (count.evaluated, count.unread)
        found.append(Watchpoint(text, total, max(total, evaluated), unread, recorded))
    return tuple(found)


def _hit(record: WatchHitRecord, manifest: Manifest) -> WatchHit:
    if record.site >= len(manifest.sites) or record.slot >= len(manifest.sites[record.site].args):
        raise RunDirError(
            f"the run is damaged: a watchpoint was hit in argument {record.slot} of site {record.site}",
            hint="run the package again",
        )
    site = manifest.sites[record.site]
    return WatchHit(
        key=record.key,
        site=site,
        argument=site.args[record.slot].name,
        phase=record.phase,
        statistic=record.statistic,
        element=record.element,
        value=record.value,
        number=record.number,
        replay=record.replay,
        actions=record.actions,
        thread=record.thread,
    )
