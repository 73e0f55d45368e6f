"""Reads journal.bin (runtime_shims/formats/journal_format.h): its header, an index of its records, those of a launch.

A process may die at any instruction: every record before that instruction is read. Parts that cannot be decoded (a
block that the runtime was about to reuse, the end of a truncated file) are counted and skipped.
"""

from __future__ import annotations

import errno
import os
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from aoti_debug.base import abi
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import untrusted_files
from aoti_debug.package.argument_values import Value
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir.formats.journal_block import JournalBlock, Layouts
from aoti_debug.runs.rundir.formats.journal_index import JournalIndex, Seen, unpack
from aoti_debug.runs.rundir.formats.journal_records import FaultRecord, Record, TensorFile

_LARGEST_BLOCK = 64 << 20  # bytes; the runtime's have 64 KiB
_KEPT_BLOCKS = 64


@dataclass(frozen=True)
class Header:
    """The header of a journal."""

    pid: int
    level: int
    start_unix_ns: int  # wall clock when `time_ns` was 0
    blocks_reused: int  # > 0: older launches were overwritten
    crumb_every: int  # the most launches without a breadcrumb, outside of CUDA graphs; 0: none are written
    lost_records: int = 0  # > 0: the recording had stopped before the process ended


class Journal:
    """The content of a journal: where its records are, which are decoded when they are asked for.

    A small journal is kept in memory. The blocks of a large one are read again, from a file that stays open.

    Attributes:
        index: of the records that were there when it was read.
        is_cut_off: the file ends within a block, as only a copy does.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.header, self._block_bytes = _read_header(path, file)
        self.index = JournalIndex()
        self.is_cut_off = (file.seek(0, os.SEEK_END) - abi.JOURNAL_HEADER.size) % self._block_bytes != 0
        self._path = path
        self._layouts = Layouts()
        self._blocks: dict[int, JournalBlock] = {}  # some of them, by place
        self._descriptor = os.dup(file.fileno())
        self._close = weakref.finalize(self, os.close, self._descriptor)
        sequences = {place: s for place in _places(file, self._block_bytes) if (s := self._sequence(place)) is not None}
        self._known: dict[
            int, tuple[int, Sequence[int]]
        ] = {}  # by place: sequence of the block, offsets of its layouts
        for place in sorted(sequences, key=sequences.__getitem__):
            block = self._read(place, sequences[place])
            if block is not None:
                block.add_to(self.index)
                self._known[place] = (block.sequence, array("I", block.layout_offsets))
                if len(sequences) <= _KEPT_BLOCKS:
                    self._blocks[place] = block
        self.index.finish()
        if len(self._blocks) == len(self._known):
            self._close()

    @property
    def is_incomplete(self) -> bool:
        """True if records are missing that the process had written: a block is damaged, or the file ends within one."""
        return bool(self.damaged_blocks) or self.is_cut_off

    @property
    def damaged_blocks(self) -> int:
        """The number of blocks whose end could not be decoded."""
        return self.index.damaged_blocks

    @property
    def places(self) -> Collection[int]:
        """The places of its blocks, in the order in which they were taken."""
        return self._known.keys()

    def block(self, place: int) -> JournalBlock:
        """The block that an offset in the file is in.

        Raises:
            RunDirError: it is not there any more.
        """
        first = abi.JOURNAL_HEADER.size
        start = first + (place - first) // self._block_bytes * self._block_bytes
        block = self._blocks.get(start)
        if block is None:
            try:
                sequence, layout_offsets = self._known[start]
                block = self._read(start, sequence)
            except OSError as error:
                raise RunDirError(f"cannot read {self._path}: {error.strerror}") from error
            if block is None:
                raise RunDirError(
                    f"{self._path} was overwritten while it was read", hint="the run goes on: read it again"
                )
            block.read_layouts(layout_offsets)
            if len(self._blocks) >= _KEPT_BLOCKS:
                self._blocks.clear()
            self._blocks[start] = block
        return block

    def record(self, place: int) -> Record:
        """The record at an offset in the file, which the index has.

        Raises:
            RunDirError: it is not there any more.
        """
        return self.block(place).record(place)

    def _sequence(self, place: int) -> int | None:
        """The number of the block at an offset; None if none was written yet."""
        size = abi.BLOCK_HEADER.size
        header = os.pread(self._descriptor, size, place)
        if len(header) < size:
            return None
        magic, _, sequence = abi.BLOCK_HEADER.codec.unpack(header)
        return sequence if magic == abi.BLOCK_MAGIC else None

    def _read(self, place: int, sequence: int) -> JournalBlock | None:
        """The block at an offset; None if its owner has changed, also while it was read."""
        data = os.pread(self._descriptor, self._block_bytes, place)
        if len(data) < abi.BLOCK_HEADER.size or self._sequence(place) != sequence:
            return None
        block = JournalBlock(data, place, self._layouts)
        return block if block.sequence == sequence else None


class WallClock:
    """Turns times of a journal into nanoseconds since 1970.

    The journal's own counter is off by some ten microseconds a second; calls on a device record the wall clock as they
    begin and end, and between two such records the time is interpolated.

    Attributes:
        is_recorded: False without such records: the start of the journal is the only time that is known.
    """

    def __init__(self, journal: Journal) -> None:
        known = sorted(set(zip(*journal.index.clocks, strict=True)))
        self.is_recorded = bool(known)
        self._known = known or [(0, journal.header.start_unix_ns)]
        self._times = [time for time, _ in self._known]

    def unix_ns(self, time_ns: int) -> int:
        """The wall clock at a time of the journal."""
        after = bisect_right(self._times, time_ns)
        time, unix = self._known[max(after - 1, 0)]
        if 0 < after < len(self._known):
            next_time, next_unix = self._known[after]
            return unix + (time_ns - time) * (next_unix - unix) // (next_time - time)
        return unix + time_ns - time


def has_begun(path: Path) -> bool:
    """True if a journal has its header, which is written last: a process may be killed before, or be about to.

    Raises:
        RunDirError: it cannot be opened.
    """
    try:
        with untrusted_files.open_file(path.parent, path.name) as file:
            return any(file.read(len(abi.JOURNAL_MAGIC)))
    except OSError as error:
        raise RunDirError(f"cannot read {path}: {error.strerror}") from error


def read(path: Path) -> Journal:
    """Reads a journal, also one that is still being written.

    Raises:
        RunDirError: it cannot be opened, its header is truncated, or it has another version.
    """
    try:
        with untrusted_files.open_file(path.parent, path.name) as file:
            return Journal(path, file)
    except OSError as error:
        raise RunDirError(f"cannot read {path}: {error.strerror}") from error


def _read_header(path: Path, file: BinaryIO) -> tuple[Header, int]:
    data = file.read(abi.JOURNAL_HEADER.size)
    if len(data) == abi.JOURNAL_HEADER.size and not data.startswith(abi.JOURNAL_MAGIC):
        raise RunDirError(f"{path} is not a journal of aoti-debug", hint="run the package again")
    block_bytes, pid, level, start, reused, every, lost, _ = abi.JOURNAL_HEADER.read_header(
        path, data, abi.JOURNAL_MAGIC, abi.JOURNAL_VERSION
    )
    if not abi.BLOCK_HEADER.size < block_bytes <= _LARGEST_BLOCK:
        raise RunDirError(f"{path} is damaged: blocks of {block_bytes} bytes", hint="run the package again")
    return Header(pid, level, start, reused, every, lost), block_bytes


def _places(file: BinaryIO, block_bytes: int) -> Iterator[int]:
    """The offsets of the blocks. Holes of a sparse file, which may be of any size, hold none."""
    descriptor, first = file.fileno(), abi.JOURNAL_HEADER.size
    end = os.fstat(descriptor).st_size
    offset = data_end = first
    while offset < end:
        if offset >= data_end:
            try:
                data = os.lseek(descriptor, offset, os.SEEK_DATA)
                data_end = os.lseek(descriptor, data, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    return
                raise
            offset = first + (data - first) // block_bytes * block_bytes
        yield offset
        offset += block_bytes


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
