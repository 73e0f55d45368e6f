"""Breadcrumbs (crumbs.bin): per stream, the last launch that is known to have completed on the device.

The runtime keeps them in a file of /dev/shm, which outlives a process that dies; crumbs.bin in the run directory is a
link to it until `preserve` replaces it with a copy.
"""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base import abi
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, untrusted_files
from aoti_debug.runs.rundir.formats import shared_files

NAME = "crumbs.bin"


@dataclass(frozen=True)
class Crumb:
    """The progress of one stream."""

    stream_slot: int
    stream: int
    completed: int  # Launch.sequence; 0: none yet
    replays: int  # of a captured call, that have begun; 0: they are not counted, or the slot is a stream's

    def has_completed(self, sequence: int) -> bool:
        """True of the last launch that is known to have completed, and of those before it; numbers of 32 bits wrap."""
        return self.completed != 0 and not 0 < (sequence - self.completed) & 0xFFFFFFFF < 1 << 31


@dataclass(frozen=True)
class Crumbs:
    """The breadcrumbs of a run."""

    every: int  # the most launches without one
    crumbs: tuple[Crumb, ...]  # of the streams that were used


def read(run: Path) -> Crumbs | None:
    """Reads crumbs.bin of a run; None if it has none: a CPU run, or the shared memory was freed.

    Raises:
        RunDirError: the file is not a crumbs file, has another version, or is truncated.
    """
    path = run / NAME
    data = content(run)
    if data is None:
        return None
    header, slot = abi.CRUMB_HEADER, abi.CRUMB_SLOT
    n_slots, every = header.read_header(path, data, abi.CRUMB_MAGIC, abi.CRUMB_VERSION)
    if len(data) < header.size + n_slots * slot.size:
        raise RunDirError(f"{path} is truncated: it ends within its slots")
    slots = [slot.codec.unpack_from(data, header.size + index * slot.size) for index in range(n_slots)]
    return Crumbs(
        every,
        tuple(
            Crumb(index, stream, completed, replays)
            for index, (completed, used, stream, replays) in enumerate(slots)
            if used
        ),
    )


def preserve(run: Path) -> None:
    """Replaces the link of a run whose process has ended with a copy, and frees the shared memory.

    Raises:
        OSError: the copy cannot be written.
    """
    shared = shared_files.linked(run, NAME)
    if shared is not None:
        atomic_write.write(run / NAME, untrusted_files.read_bytes(shared.parent, shared.name))
        shared.unlink(missing_ok=True)


def content(run: Path) -> bytes | None:
    """The bytes of the file, or of the memory that it is a link to; None if there is neither.

    Raises:
        RunDirError: they cannot be read.
    """
    shared = shared_files.linked(run, NAME)
    if shared is None and (run / NAME).is_symlink():
        return None  # shared memory that was freed, or is not this run's
    path = shared or run / NAME
    try:
        return untrusted_files.read_bytes(path.parent, path.name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunDirError(f"cannot read {run / NAME}: {error.strerror}") from error
