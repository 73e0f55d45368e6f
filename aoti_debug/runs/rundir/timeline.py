"""The timeline of a run: its calls, launches and faults, made from the journal when they are asked for.

The timeline joins the journal with the manifest's sites.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import dropwhile, islice
from typing import TypeVar, cast, overload

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir import watchpoints
from aoti_debug.runs.rundir.formats import journal_records
from aoti_debug.runs.rundir.formats.journal import Journal, LaunchSource
from aoti_debug.runs.rundir.formats.journal_index import Seen
from aoti_debug.runs.rundir.formats.journal_records import CallBegin, CallEnd, LaunchKey, Record, TensorFile
from aoti_debug.runs.rundir.launch import STATUS, Launch, LaunchStatus, ModelCall
from aoti_debug.runs.rundir.watchpoints import Watchpoint, WatchpointRecord

T = TypeVar("T")
R = TypeVar("R", bound=Record)

_KEPT = 10_000  # launches: all of most runs


class _MadeOnDemand(Sequence[T]):
    def _make(self, position: int) -> T:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        positions = range(len(self))[index]
        return self._make(positions) if isinstance(positions, int) else tuple(map(self._make, positions))

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(len(self)))


class Calls(_MadeOnDemand[ModelCall]):
    """The calls of a run, in the order in which they began."""

    def __init__(self, source: LaunchSource) -> None:
        self._source = source
        self._columns = source.index.calls

    @property
    def has_graphs(self) -> bool:
        """True if a CUDA graph captured one of them."""
        return self._columns.has_graphs

    def __len__(self) -> int:
        return len(self._columns.begins)

    def _make(self, position: int) -> ModelCall:
        source, columns = self._source, self._columns
        begin = cast(CallBegin, source.record(columns.begins[position]))
        end = cast(CallEnd, source.record(columns.ends[position])) if columns.ends[position] else None
        return ModelCall(
            kind=begin.kind,
            call=begin.call,
            thread=begin.thread,
            level=begin.level,
            capturing=begin.capturing,
            stream_slot=begin.stream_slot,
            stream=begin.stream,
            ended=end is not None,
            failed=end is not None and end.failed,
            begin_ns=begin.time_ns,
            end_ns=None if end is None else end.time_ns,
            replays=source.index.replays_of(begin.kind, begin.call),
        )


class Launches(_MadeOnDemand[Launch]):
    """The launches of a run, in the order in which they began. Some are kept: those that were asked for last."""

    def __init__(self, source: LaunchSource) -> None:
        self._source = source
        self._keys, self._sites, self._seen = source.columns.keys, source.columns.sites, source.seen
        self._kept: dict[int, Launch] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def _make(self, position: int) -> Launch:
        launch = self._kept.get(position)
        if launch is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            launch = self._kept[position] = Launch(self._source, position)
        return launch

    def position(self, key: LaunchKey) -> int | None:
        """The position of a launch; None if the run does not have it."""
        return self._source.columns.position(key)

    def find(self, key: LaunchKey) -> Launch | None:
        """The launch of a key; None if the run does not have it."""
        position = self.position(key)
        return None if position is None else self[position]

    def earlier(self, position: int, sites: Collection[int]) -> Iterable[int]:
        """The positions of the launches before one, the last first: those of its call, and those of some sites."""
        if not sites:
            of_call = self._source.columns.of_call(position)
            return reversed(of_call[: bisect_left(of_call, position)])
        call, keys, site_of = self._keys[position] >> 32, self._keys, self._sites
        return (at for at in range(position - 1, -1, -1) if site_of[at] in sites or keys[at] >> 32 == call)

    def of_call(self, launch: Launch) -> Iterator[Launch]:
        """The launches of its call."""
        position = self.position(launch.key)
        return iter(()) if position is None else map(self._make, self._source.columns.of_call(position))

    def later_in_call(self, launch: Launch) -> Iterator[Launch]:
        """The launches of its call after one."""
        return islice(dropwhile(lambda other: other.key != launch.key, self.of_call(launch)), 1, None)

    def by_call(self, sites: Container[int] | None = None) -> Iterator[Sequence[Launch]]:
        """The launches of each call; those of some sites only.

        A run may have more launches than fit in memory, and none of them is made before its call is asked for.
        """
        for positions in self._source.columns.by_call():
            yield [self._make(at) for at in positions if sites is None or self._sites[at] in sites]

    @cached_property
    def site_ids(self) -> tuple[int, ...]:
        """The sites that were launched, in the order of their first launches."""
        return tuple(dict.fromkeys(self._sites))

    @cached_property
    def is_measured(self) -> bool:
        """True if the run has a record of the values of a tensor."""
        return any(seen & Seen.MEASURED for seen in set(self._seen))

    def of_status(self, status: LaunchStatus) -> tuple[Launch, ...]:
        """The launches that ended so."""
        wanted = {seen for seen in set(self._seen) if STATUS[seen] is status}
        return tuple(self[position] for position, seen in enumerate(self._seen) if seen in wanted) if wanted else ()

    def notable(self) -> Iterator[Launch]:
        """The launches with a tensor whose statistics show NaN, an infinity or a number near to overflow."""
        return (self[position] for position, seen in enumerate(self._seen) if seen & Seen.NOTABLE)

    def of_sites(self, ids: frozenset[int]) -> tuple[Launch, ...]:
        """The launches of sites."""
        return tuple(self[position] for position, site in enumerate(self._sites) if site in ids)


@dataclass(frozen=True)
class Timeline:
    """The calls, launches and faults of a run, in order of time."""

    calls: Calls
    launches: Launches
    faults: tuple[journal_records.FaultRecord, ...]
    notes: tuple[journal_records.NoteRecord, ...]
    damages: tuple[journal_records.GuardDamage, ...]  # to guards around buffers; on a device in the order of detection
    watchpoints: tuple[Watchpoint, ...]
    ended: bool  # by a normal unload of the package
    cut_short: bool  # and the recording had stopped before


def assemble(journal: Journal | None, rescued: Sequence[TensorFile], manifest: Manifest) -> Timeline:
    """Joins a journal; records of a launch whose beginning was overwritten are dropped.

    Args:
        journal: None if the run has none.
        rescued: tensors that count as saved.

    Raises:
        RunDirError: a record names a site or an argument that the manifest does not have.
    """
    faults: list[journal_records.FaultRecord] = []
    notes: list[journal_records.NoteRecord] = []
    damages: list[journal_records.GuardDamage] = []
    watched: list[WatchpointRecord] = []
    ended = cut_short = False
    for record in () if journal is None else journal.index.others:
        match record:
            case journal_records.FaultRecord():
                faults.append(record)
            case journal_records.NoteRecord():
                notes.append(record)
            case journal_records.GuardDamage():
                damages.append(record)
            case journal_records.WatchRecord() | journal_records.WatchHitRecord() | journal_records.WatchCountRecord():
                watched.append(record)
            case journal_records.RunEnd():
                ended, cut_short = True, record.cut_short
    source = LaunchSource(journal, manifest, faults, rescued)
    source.check()
    return Timeline(
        calls=Calls(source),
        launches=Launches(source),
        faults=tuple(faults),
        notes=tuple(notes),
        damages=tuple(damages),
        watchpoints=watchpoints.join(watched, manifest),
        ended=ended,
        cut_short=cut_short,
    )
