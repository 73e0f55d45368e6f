"""The flight recorder's file (flight.bin): the inputs of the last launches, as they were before each launch.

The runtime keeps it in /dev/shm, which outlives a process that dies; flight.bin in the run directory is a link to it.
Its structs are those of runtime_shims/formats/flight_recorder_format.h; tests/base/test_abi.py compares them.
"""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from aoti_debug.base.abi import CallKind, Struct
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.weights_file import WeightsFile
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey

MAGIC = b"AOTIDBF1"
VERSION = 2


class FlightStatus(int, Enum):
    """FlightStatus of flight_recorder_format.h: whether an input was kept, or the reason why not."""

    KEPT = 0
    TOO_LARGE = 1
    UNREADABLE = 2
    NOT_COPIED = 3
    BUSY = 4
    FULL = 5
    REFERRED = 6


HEADER = Struct(
    "FlightHeader",
    "magic:8s version:I pid:I keep:I n_launches:I n_tensors:I weights_bytes:I data:Q data_bytes:Q host_bytes:Q "
    "reserved2:Q",
)
LAUNCH = Struct(
    "FlightLaunch",
    "generation:Q arrived:I thread:I call:I launch:I kind:B reserved:7B stream:Q model:Q host_begin:Q host_end:Q "
    "device_begin:Q device_end:Q first:I n_tensors:I n_left_out:I reserved2:I",
)
TENSOR = Struct("FlightTensor", "generation:I slot:H status:B reserved:B address:Q begin:Q bytes:Q place:Q hash:2Q")

STRUCTS = (HEADER, LAUNCH, TENSOR)


REASONS = {
    FlightStatus.TOO_LARGE: "larger than the flight recorder's memory (AOTI_DEBUG_FLIGHT_BYTES)",
    FlightStatus.UNREADABLE: "its elements cannot be read",
    FlightStatus.NOT_COPIED: "its bytes could not be copied from the device",
    FlightStatus.BUSY: "the flight recorder's memory was still in use by other streams",
    FlightStatus.FULL: "/dev/shm is full",
}


class KeptTensor(NamedTuple):
    """An input of a launch, and the place of its bytes in the file."""

    slot: int
    status: FlightStatus
    address: int  # of the first element
    begin: int  # bytes from the beginning of the file, if it was kept
    bytes: int  # from the first element to the end of the last one
    place: int  # of a weight: the byte of its file at which element 0 may lie; 0 where there is none
    hash: tuple[int, int]  # of a weight that is referred to


@dataclass(frozen=True)
class KeptLaunch:
    """A launch whose recording is complete.

    Attributes:
        generation: its number among the recorded launches, from 1.
        left_out: the number of tensors for which the table had no space.
    """

    key: LaunchKey
    generation: int
    tensors: tuple[KeptTensor, ...]
    left_out: int


@dataclass(frozen=True)
class Recording:
    """The content of the recorder at the end of its process.

    Attributes:
        keep: the number of launches to keep (AOTI_DEBUG_FLIGHT).
        launches: those that are complete, oldest first.
        weights: the file that weights lie in; None where it is not known.
    """

    keep: int
    launches: tuple[KeptLaunch, ...]
    weights: WeightsFile | None
    _data: memoryview

    def bytes_of(self, tensor: KeptTensor) -> memoryview:
        """The bytes from the tensor's first element to the end of its last one."""
        return self._data[tensor.begin : tensor.begin + tensor.bytes]

    def launches_until(self, key: LaunchKey | None) -> tuple[KeptLaunch, ...]:
        """The last `keep` launches up to and including one launch; None for the newest."""
        last = next((i for i, launch in enumerate(self.launches) if launch.key == key), len(self.launches) - 1)
        return self.launches[max(last + 1 - self.keep, 0) : last + 1]


class _Entry(NamedTuple):
    """FlightLaunch of runtime_shims/formats/flight_recorder_format.h."""

    generation: int
    arrived: int
    thread: int
    call: int
    launch: int
    kind: int
    stream: int
    model: int
    host_begin: int
    host_end: int
    device_begin: int
    device_end: int
    first: int
    n_tensors: int
    n_left_out: int

    @property
    def is_complete(self) -> bool:
        return self.arrived == self.generation & 0xFFFFFFFF

    @property
    def order(self) -> tuple[int, int, int]:
        """The stream, model and thread; the copies of launches that share them are made in order."""
        return self.stream, self.model, self.thread


def read(path: Path) -> Recording | None:
    """Reads the file of a process that has ended; None if it does not exist or was never initialised.

    Raises:
        RunDirError: the file has another version, or is truncated.
    """
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunDirError(f"cannot read {path}: {error}") from error
    if len(data) < HEADER.size or bytes(data[:8]) == bytes(8):
        return None
    _, keep, n_launches, n_tensors, text_bytes, begin, size, _ = HEADER.read_header(path, data, MAGIC, VERSION)
    table = HEADER.size + n_launches * LAUNCH.size
    text = table + n_tensors * TENSOR.size
    if begin < text + text_bytes or len(data) < begin + size:
        raise RunDirError(f"{path} is truncated")
    entries = sorted(
        _Entry(*values) for values in LAUNCH.codec.iter_unpack(data[HEADER.size : table]) if values[0] != 0
    )
    tensors = [TENSOR.codec.unpack_from(data, table + index * TENSOR.size) for index in range(n_tensors)]
    launches = (_launch(entry, tensors, begin, size) for entry in _intact(entries))
    weights = _weights(bytes(data[text : text + text_bytes]))
    return Recording(keep, tuple(launch for launch in launches if launch is not None), weights, data)


def _weights(text: bytes) -> WeightsFile | None:
    """The file that weights lie in; None where there is none, or the text does not name one."""
    fields = os.fsdecode(text).split("\t")
    return WeightsFile(fields[0], int(fields[1]), fields[2], {}) if len(fields) == 3 and fields[1].isdecimal() else None


def _launch(entry: _Entry, tensors: Sequence[tuple[int, ...]], data: int, size: int) -> KeptLaunch | None:
    """The launch of an entry; None if its list of tensors was overwritten."""
    kept_tensors = []
    for index in range(entry.first, entry.first + entry.n_tensors):
        generation, slot, status, address, begin, bytes_, place, *hash_ = tensors[index % len(tensors)]
        flight_status = FlightStatus(status)
        is_kept = flight_status is FlightStatus.KEPT
        if generation != entry.generation & 0xFFFFFFFF or (is_kept and begin + bytes_ > size):
            return None
        kept_tensors.append(KeptTensor(slot, flight_status, address, data + begin, bytes_, place, (hash_[0], hash_[1])))
    key = LaunchKey(CallKind(entry.kind), entry.call, entry.launch)
    return KeptLaunch(key, entry.generation, tuple(kept_tensors), entry.n_left_out)


def _intact(entries: Sequence[_Entry]) -> list[_Entry]:
    """The complete launches whose bytes no later launch has begun to overwrite; `entries` are ordered by age."""
    import numpy as np

    if not entries:
        return []
    host = np.array([(e.host_begin, e.host_end) for e in entries], dtype=np.uint64)
    on_device = _may_have_begun(entries)
    device = np.array([(e.device_begin, e.device_end) if e in on_device else (0, 0) for e in entries], dtype=np.uint64)
    intact = []
    for index, entry in enumerate(entries):
        later_host, later_device = host[index + 1 :], device[index + 1 :]
        overwritten = (
            ((later_host[:, 0] < entry.host_end) & (later_host[:, 1] > entry.host_begin)).any()
            or ((later_device[:, 0] < entry.device_end) & (later_device[:, 1] > entry.device_begin)).any()
        )  # fmt: skip
        if entry.is_complete and not overwritten:
            intact.append(entry)
    return intact


def _may_have_begun(entries: Sequence[_Entry]) -> set[_Entry]:
    """The launches whose copies the device may have begun: on each stream, up to the first incomplete one."""
    by_order: dict[tuple[int, int, int], list[_Entry]] = defaultdict(list)
    for entry in entries:
        if entry.device_end > entry.device_begin:
            by_order[entry.order].append(entry)
    begun: set[_Entry] = set()
    for ordered in by_order.values():
        last_complete = max((index for index, entry in enumerate(ordered) if entry.is_complete), default=-1)
        begun.update(ordered[: last_complete + 2])
    return begun
