"""The file of one call: the inputs of a model, byte for byte, mapped into memory, and how the call ended.

Tensors that share memory share it in the file, and those that torch reads negated or conjugated are read so from it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import mmap
import os
import struct
import threading
import time
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data

if TYPE_CHECKING:
    import torch

_HEADER = struct.Struct("<qqqq")  # the number of the call, how it ended, when it began, bytes of the layouts
_END = 8  # the byte in it that says how the call ended
_ALIGNMENT = 64


class KeptEnd(IntEnum):
    """The state of a call: it has not ended, has returned, or has raised an exception."""

    OPEN = 0
    RETURNED = 1
    RAISED = 2


@dataclass(frozen=True)
class _Layout:
    """A tensor in a file.

    Attributes:
        memory: where the memory begins that it shares with others, after the layouts.
        offset: of its bytes there.
        bytes: from its first element to its last.
        is_negative, is_conjugate: torch negates or conjugates its numbers when it reads them.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    memory: int
    offset: int
    bytes: int
    is_negative: bool
    is_conjugate: bool


@dataclass(frozen=True)
class _Layouts:
    tensors: tuple[_Layout, ...]


@dataclass(frozen=True)
class Raised:
    """An exception that a call raised.

    Attributes:
        error: "RuntimeError: …", the first line.
        is_in_main_thread: one that nobody catches would end the process.
    """

    error: str
    is_in_main_thread: bool


def _raised_file(file: Path) -> Path:
    return file.with_suffix(".raised.json")


@dataclass(frozen=True)
class KeptCall:
    """A call that was kept.

    Attributes:
        number: from 0, among the calls of the model in its process.
        began: when, in nanoseconds of the monotonic clock, which all processes share.
        file: holds its tensors.
    """

    number: int
    end: KeptEnd
    began: int
    file: Path

    @property
    def raised(self) -> Raised | None:
        """The exception that it raised; None where that was not written down."""
        try:
            return json_data.parse(Raised, _raised_file(self.file).read_bytes())
        except (OSError, json_data.DamagedJsonError):
            return None

    def tensors(self) -> list[torch.Tensor]:
        """Its tensors, on the CPU, with the strides that they had; those that shared memory share it.

        One that began within an element of its dtype, as torch.frombuffer makes it, has memory of its own.

        Raises:
            OSError, ValueError: the file cannot be read.
        """
        import torch

        data = bytearray(self.file.read_bytes())
        size = _HEADER.unpack_from(data)[3]
        layouts = json_data.parse(_Layouts, bytes(data[_HEADER.size : _HEADER.size + size])).tensors
        begin, ends = _aligned(_HEADER.size + size), dict.fromkeys([layout.memory for layout in layouts], 0)
        for layout in layouts:
            ends[layout.memory] = max(ends[layout.memory], layout.offset + layout.bytes)

        def memory(at: int, size: int) -> torch.UntypedStorage:
            return torch.frombuffer(data, dtype=torch.uint8, count=size, offset=begin + at).clone().untyped_storage()

        memories = {at: memory(at, end) for at, end in ends.items() if end}
        found = []
        for layout in layouts:
            tensor = torch.empty(0, dtype=getattr(torch, layout.dtype))
            if layout.bytes:
                place, rest = divmod(layout.offset, tensor.element_size())
                held = memories[layout.memory]
                if rest:
                    held, place = memory(layout.memory + layout.offset, layout.bytes), 0
                tensor = tensor.set_(held, place, layout.shape, layout.strides)
            else:
                tensor = tensor.as_strided(layout.shape, layout.strides)
            found.append(_marked(tensor, is_negative=layout.is_negative, is_conjugate=layout.is_conjugate))
        return found


def call_in(file: Path) -> KeptCall | None:
    """The call that a file is of; None of one that was cut off."""
    with file.open("rb") as opened:
        header = opened.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    number, end, began, _ = _HEADER.unpack(header)
    return KeptCall(number, KeptEnd(end), began, file)


class CallFile:
    """A file for the tensors of one call, mapped into memory.

    Args:
        key: of its tensors, as `key_of` returns it.

    Attributes:
        filled: when it got the tensors that are in it, by time.perf_counter.
        least: the least time that a copy into it took, in seconds.

    Raises:
        OSError: there is no room.
    """

    def __init__(self, path: Path, key: tuple[Any, ...]) -> None:
        layouts, size = _layouts(key)
        text = json_data.to_text(layouts, indent=None).encode()
        begin = _aligned(_HEADER.size + len(text))
        self.path = path
        self.folder = path.parent
        self.key = key
        self.filled, self.least = 0.0, math.inf
        with path.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, begin + size)  # a page without room would kill the process
            self._memory = mmap.mmap(file.fileno(), begin + size)
        self._memory[_HEADER.size : _HEADER.size + len(text)] = text
        self._bytes_of_layouts = len(text)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        places = [(address + begin + layout.memory + layout.offset, layout.bytes) for layout in layouts.tensors]
        self._places = [(is_of_cpu, *place) for (is_of_cpu, *_), place in zip(key[0], places, strict=True)]

    def fill(self, number: int, tensors: Sequence[torch.Tensor]) -> None:
        """Copies the tensors of a call."""
        _HEADER.pack_into(self._memory, 0, number, 0, time.monotonic_ns(), self._bytes_of_layouts)
        for tensor, (is_of_cpu, address, size) in zip(tensors, self._places, strict=True):
            if not size:
                continue
            source = tensor
            if not is_of_cpu:
                plain = _marked(tensor.detach(), is_negative=tensor.is_neg(), is_conjugate=tensor.is_conj())
                source = plain.as_strided((size // tensor.element_size(),), (1,)).cpu()
            ctypes.memmove(address, source.data_ptr(), size)

    def end(self, end: KeptEnd) -> None:
        """Says how the call ended."""
        self._memory[_END] = end

    def raised(self, error: BaseException) -> None:
        """Says that the call ended with an exception, and with which one if there is room."""
        self.end(KeptEnd.RAISED)
        is_in_main_thread = threading.current_thread() is threading.main_thread()
        with contextlib.suppress(Exception):  # of its text, or a full disk: the script sees the error of its model
            raised = Raised(wording.first_line(f"{type(error).__name__}: {error}"), is_in_main_thread)
            _raised_file(self.path).write_text(json_data.to_text(raised), encoding="utf-8")

    def rename(self, name: str) -> None:
        """Gives the file another name, under which it stays as it is."""
        self.path = self.path.rename(self.path.with_name(name))

    def close(self) -> None:
        """Deletes the file."""
        self.path.unlink(missing_ok=True)


def key_of(tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """The key of a file for calls: device, dtype, layout and marks of each tensor, and the memory that they share."""
    entries = tuple([(t.is_cpu, t.dtype, t.shape, t.stride(), t.is_neg(), t.is_conj()) for t in tensors])
    storages = [tensor.untyped_storage() for tensor in tensors]
    spans = sorted([(storage.data_ptr(), storage.nbytes()) for storage in storages])  # some lie in others, as of NumPy
    is_shared = any(begin + size > following for (begin, size), (following, _) in itertools.pairwise(spans))
    return entries, _places(tensors, entries) if is_shared else ()


def _places(tensors: Sequence[torch.Tensor], entries: Sequence[tuple[Any, ...]]) -> tuple[tuple[int, int], ...]:
    """Of each tensor the number of the memory that it shares with those that it overlaps, and its place there."""
    begins = [tensor.data_ptr() for tensor in tensors]
    found, number, first, end = [(0, 0)] * len(begins), -1, 0, 0
    for index in sorted(range(len(begins)), key=begins.__getitem__):
        size = _size(entries[index])
        if begins[index] >= end or not size:
            number, first = number + 1, begins[index] - begins[index] % _ALIGNMENT  # of addresses, the rest counts
        found[index] = (number, begins[index] - first)
        end = max(end, begins[index] + size)
    return tuple(found)


def _size(entry: tuple[Any, ...]) -> int:
    """Bytes from the first element of a tensor to its last."""
    _, dtype, shape, strides, *_ = entry
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return 0 if 0 in shape else (last + 1) * int(dtype.itemsize)


def bytes_of(key: tuple[Any, ...]) -> int:
    """The bytes that the tensors of a call take in its file."""
    return _layouts(key)[1]


def _layouts(key: tuple[Any, ...]) -> tuple[_Layouts, int]:
    """The layouts of tensors one after the other, and how many bytes they take."""
    entries, places = key
    places = places or [(number, 0) for number in range(len(entries))]
    sizes: dict[int, int] = {}
    for entry, (number, offset) in zip(entries, places, strict=True):
        sizes[number] = max(sizes.get(number, 0), offset + _size(entry))
    begins = dict(zip(sizes, itertools.accumulate(map(_aligned, sizes.values()), initial=0), strict=False))
    found = [
        _Layout(
            str(dtype).removeprefix("torch."),
            tuple(shape),
            tuple(strides),
            begins[number],
            offset,
            _size(entry),
            *marks,
        )
        for entry, (number, offset) in zip(entries, places, strict=True)
        for _, dtype, shape, strides, *marks in (entry,)
    ]
    return _Layouts(tuple(found)), sum(map(_aligned, sizes.values()))


def _marked(tensor: torch.Tensor, *, is_negative: bool, is_conjugate: bool) -> torch.Tensor:
    """A view of the same bytes, with the marks that say how torch reads them; without those that it has already."""
    import torch

    tensor = torch._neg_view(tensor) if is_negative else tensor
    return tensor.conj() if is_conjugate else tensor


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT
