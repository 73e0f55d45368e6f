"""The records of a journal by launch, with the tensors that were rescued."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter

from aoti_debug.base.errors import RunDirError
from aoti_debug.package.argument_values import Value
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir.formats.journal import Journal
from aoti_debug.runs.rundir.formats.journal_index import JournalIndex, Seen, unpack
from aoti_debug.runs.rundir.formats.journal_records import FaultRecord, Record, TensorFile


class LaunchSource:
    """The records of all launches and calls of a run.

    Attributes:
        seen: of each launch, bits of `Seen`.
    """

    def __init__(
        self, journal: Journal | None, manifest: Manifest, faults: Sequence[FaultRecord], rescued: Sequence[TensorFile]
    ) -> None:
        """`rescued`: tensors that count as saved."""
        self._journal = journal
        self.sites = manifest.sites
        self.kernels = {kernel.id: kernel for kernel in manifest.kernels}
        self.index = JournalIndex() if journal is None else journal.index
        self.columns = self.index.launches
        self.seen = array("B", self.columns.seen) if rescued else self.columns.seen
        self.faults = {fault.launch: fault for fault in faults if fault.launch is not None}
        self._rescued: dict[int, list[TensorFile]] = {}  # by position
        for file in rescued:
            position = self.columns.position(file.key)
            if position is not None:
                self._rescued.setdefault(position, []).append(file)
                self.seen[position] |= Seen.MEASURED

    def record(self, place: int) -> Record:
        """The record at an offset in the journal."""
        assert self._journal is not None
        return self._journal.record(place)

    def values(self, place: int) -> Mapping[int, Value]:
        """The values of the launch that begins at an offset in the journal."""
        assert self._journal is not None
        return self._journal.block(place).values(place)

    def further(self, position: int) -> list[Record]:
        """The records of a launch between its beginning and its end, and after it, by time."""
        records = [self.record(place) for place in self.columns.further(position)]
        records.reverse()
        records.sort(key=attrgetter("time_ns"))
        return [*records, *self._rescued.get(position, ())]

    def check(self) -> None:
        """Raises RunDirError if a record names a site that the manifest does not have, or an argument of one."""
        sites = self.sites
        if max(self.columns.sites, default=-1) >= len(sites):
            site = next(site for site in self.columns.sites if site >= len(sites))
            raise RunDirError(
                f"the journal names site {site}, but the manifest has {len(sites)}",
                hint="the manifest belongs to another package: run the package again",
            )
        largest = (
            (slot, unpack(packed), len(sites[site].args)) for site, (slot, packed) in self.columns.largest_slots.items()
        )
        rescued = (
            (file.slot, file.key, len(sites[self.columns.sites[position]].args))
            for position, files in self._rescued.items()
            for file in files
        )
        for slot, key, count in chain(largest, rescued):
            if not 0 <= slot < count:  # one of a rescued tensor may be negative
                raise RunDirError(
                    f"the run is damaged: a tensor of argument {slot} of launch {key}, which has {count} arguments",
                    hint="run the package again",
                )
