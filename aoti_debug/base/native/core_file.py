"""Core files: what Linux, or gdb, wrote of a process: its threads, signal, mapped files, and memory.

Only 64-bit little-endian ELF. Pages of files that the process had not changed are mostly not in a core: they are read
from the files themselves.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import signal
import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes import child_process

_IDENTITY = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_CORE, _CUDA = 4, 190  # e_type, e_machine
_LOAD, _NOTES = 1, 4
_PRSTATUS, _PRPSINFO, _AUXV, _FILES, _SIGINFO = 1, 3, 6, 0x46494C45, 0x53494749
_ENTRY = 9  # AT_ENTRY: an address within the program that was started
_KERNEL_CODE = 0x80  # SI_KERNEL: the processor gave no address
_MANY = 0xFFFF  # PN_XNUM: the number of segments is in the first section
_PAGE = 4096
_DELETED = " (deleted)"
_NO_TEXT = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_MOST_TEXTS = 256
_LONGEST = 4096  # bytes before and behind a mark


@dataclass(frozen=True)
class MappedFile:
    """A part of a file that the process had mapped; `path` as the process knew it."""

    start: int
    end: int
    offset: int
    path: str


@dataclass(frozen=True)
class CoreSignal:
    """The signal that ended the process.

    Attributes:
        name: "SIGSEGV"; "" if the core was written without a signal, as by gcore.
        address: that the thread accessed; None where the signal has none, or the processor did not say.
        is_of_processor: True if an instruction of the thread raised it, and no process sent it.
    """

    name: str
    address: int | None = None
    is_of_processor: bool = False


def is_core(path: Path) -> bool:
    """True for a core file of a process or of a GPU, by its content."""
    return _machine(path) is not None


def is_gpu_core(path: Path) -> bool:
    """True for a core dump of a GPU, by its content."""
    return _machine(path) == _CUDA


def _machine(path: Path) -> int | None:
    """The processor of a core file; None if it is no core file of 64 bits."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
    except OSError:
        return None
    if len(head) < _HEADER.size or not head.startswith(_IDENTITY):
        return None
    _, kind, machine, *_ = _HEADER.unpack(head)
    return int(machine) if kind == _CORE else None


class CoreFile:
    """A core file that is open for reading; a context manager.

    Attributes:
        path: of the file.
        signal: that ended the process.
        threads: their ids; the first is the one that received the signal.
        mappings: the mapped files, by address.
        arguments: the begin of the command line; it is cut off after 80 characters.
        replacements: files to read in place of mapped ones, by the path that the process knew.

    Raises:
        ArtifactError: it cannot be read, is cut off, or is no core file of a process of this kind of machine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replacements: dict[str, Path] = {}
        self.signal = CoreSignal("")
        self.threads: tuple[int, ...] = ()
        self.mappings: tuple[MappedFile, ...] = ()
        self.arguments = ""
        self._entry = 0
        self._same: dict[str, bool | None] = {}
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{path} cannot be read: {error}") from error
        try:
            self._segments = self._read_segments()
            self._read_notes()
        except (struct.error, IndexError, OverflowError) as error:
            self._data.close()
            raise self._cut_off() from error
        except ArtifactError:
            self._data.close()
            raise

    def __enter__(self) -> CoreFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    @cached_property
    def executable(self) -> Path | None:
        """The program that was started; None if the core does not name its file."""
        mapped = self.mapping(self._entry)
        return None if mapped is None else Path(mapped.path)

    def mapping(self, address: int) -> MappedFile | None:
        """The mapped file at an address; None for other memory."""
        return next((mapped for mapped in self.mappings if mapped.start <= address < mapped.end), None)

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The paths of the mapped files, each once, in the order of their addresses."""
        return tuple(dict.fromkeys(mapped.path for mapped in self.mappings))

    def is_of(self, mapped: str, file: Path) -> bool | None:
        """True if a file has the content of a mapped one, as far as the core holds it; None if it holds nothing of it.

        Args:
            mapped: the path that the process knew.

        Raises:
            OSError: the file cannot be read.
        """
        known = None
        if not file.is_file():  # a pipe would never end
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        with file.open("rb") as opened:
            for part in self.mappings:
                page = self._in_core(part.start, _PAGE) if part.path == mapped and part.offset == 0 else None
                if page is not None:
                    known = opened.read(_PAGE).ljust(_PAGE, b"\0") == page
                    break
        return known

    def read(self, address: int, size: int) -> bytes | None:
        """Memory of the process, also of unchanged pages of files; None if a part of it is not to be had."""
        parts = []
        while size > 0:
            part = self._in_core(address, size) or self._in_file(address, size)
            if not part:
                return None
            parts.append(part)
            address, size = address + len(part), size - len(part)
        return b"".join(parts)

    def texts(self, mark: bytes) -> Iterator[str]:
        """Yields the texts in the core that hold a mark, each with what stands before it and the rest of its line.

        A text begins behind the last byte that is none of a text. At most 256, of any age: memory that was freed keeps
        what it held.
        """
        place, known = self._data.find(mark), set[bytes]()
        for _ in range(_MOST_TEXTS):
            if place < 0:
                return
            before = _NO_TEXT.split(self._data[max(0, place - _LONGEST) : place])[-1]
            end = self._data.find(b"\n", place + len(mark), place + _LONGEST)
            text = before + self._data[place : end if end >= 0 else place + len(mark)]
            if text not in known:
                known.add(text)
                yield text.decode(errors="replace")
            place = self._data.find(mark, place + len(mark))

    def _in_core(self, address: int, size: int) -> bytes | None:
        """At most `size` bytes from an address on that are in the core itself."""
        for start, offset, length in self._segments:
            if start <= address < start + length:
                begin = offset + address - start
                return self._data[begin : begin + min(size, start + length - address)]
        return None

    def _in_file(self, address: int, size: int) -> bytes | None:
        """At most `size` bytes of a mapped file that is the same still, up to where the core has its memory."""
        mapped = self.mapping(address)
        if mapped is None:
            return None
        file = self.replacements.get(mapped.path, Path(mapped.path))
        held = min((start for start, _, _ in self._segments if start > address), default=mapped.end)
        size = min(size, mapped.end - address, held - address)
        try:
            if not self._same.setdefault(mapped.path, self.is_of(mapped.path, file)):
                return None
            with file.open("rb") as opened:
                opened.seek(mapped.offset + address - mapped.start)
                return opened.read(size)
        except (OSError, ValueError, OverflowError):  # gone, or no place in a file: the memory is not to be had
            return None

    def _read_segments(self) -> list[tuple[int, int, int]]:
        """Address, place and bytes of each part of memory that the core holds.

        Raises:
            ArtifactError: it is no core, of another processor, or is cut off.
        """
        header = _HEADER.unpack_from(self._data)
        if header[0][:6] != _IDENTITY or header[1] != _CORE:
            raise ArtifactError(f"{self.path} is no core file of 64 bits")
        count = header[10]
        if count == _MANY:
            count = struct.unpack_from("<I", self._data, header[6] + 44)[0]  # sh_info of the first section
        self._notes: list[tuple[int, int]] = []
        segments = []
        for index in range(count):
            kind, _, offset, address, _, in_file, _, _ = _SEGMENT.unpack_from(
                self._data, header[5] + index * _SEGMENT.size
            )
            if offset + in_file > len(self._data):
                raise self._cut_off()
            if kind == _LOAD and in_file:
                segments.append((address, offset, in_file))
            elif kind == _NOTES:
                self._notes.append((offset, in_file))
        return segments

    def _cut_off(self) -> ArtifactError:
        return ArtifactError(
            f"{self.path} is cut off or damaged: it has {os.path.getsize(self.path)} bytes",
            hint="ulimit -c unlimited before the process starts, and room on the disk, let it be written whole",
        )

    def _each_note(self) -> Iterator[tuple[int, bytes]]:
        for offset, size in self._notes:
            end = offset + size
            while offset + _NOTE.size <= end:
                name, length, kind = _NOTE.unpack_from(self._data, offset)
                begin = offset + _NOTE.size + (name + 3 & ~3)
                owner = self._data[offset + _NOTE.size : offset + _NOTE.size + name].rstrip(b"\0")
                if owner == b"CORE":
                    yield kind, self._data[begin : begin + length]
                offset = begin + (length + 3 & ~3)

    def _read_notes(self) -> None:
        threads, number, address, raised = [], 0, None, False
        for kind, note in self._each_note():
            if kind == _PRSTATUS:
                threads.append(struct.unpack_from("<i", note, 32)[0])
                if len(threads) == 1:
                    number = struct.unpack_from("<h", note, 12)[0]
            elif kind == _SIGINFO and address is None and len(threads) <= 1:
                signo, _, code, _, accessed = struct.unpack_from("<iiiiQ", note)
                raised = code > 0
                accesses = signo in (signal.SIGSEGV, signal.SIGBUS) and 0 < code < _KERNEL_CODE
                address = accessed if accesses else None
            elif kind == _FILES:
                self.mappings = _mappings(note)
            elif kind == _AUXV:
                pairs = struct.iter_unpack("<QQ", note[: len(note) // 16 * 16])
                self._entry = next((value for key, value in pairs if key == _ENTRY), 0)
            elif kind == _PRPSINFO:
                self.arguments = note[56:136].partition(b"\0")[0].decode(errors="replace").strip()
        self.threads = tuple(threads)
        name = child_process.signal_name(number) if number else ""
        self.signal = CoreSignal(name, address, raised)


def _mappings(note: bytes) -> tuple[MappedFile, ...]:
    count, page = struct.unpack_from("<QQ", note)
    places = [struct.unpack_from("<QQQ", note, 16 + 24 * index) for index in range(count)]
    names = note[16 + 24 * count :].split(b"\0")
    return tuple(
        MappedFile(start, end, offset * page, os.fsdecode(name).removesuffix(_DELETED))
        for (start, end, offset), name in zip(places, names, strict=False)
    )
