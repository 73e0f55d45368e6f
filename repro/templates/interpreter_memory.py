"""The memory of an interpreted kernel: each access is checked against its argument; the findings of these checks."""

from __future__ import annotations

import linecache
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import numpy
import torch
import triton
from numpy.lib.stride_tricks import as_strided

from .accesses import Access, CodeLine, lines_of

# Files whose frames are not the kernel's: Triton's own, and this interpreter's.
MACHINERY = (str(Path(triton.__file__).parent), str(Path(__file__).with_name("interpreter")))

MAX_LINES = 6  # of one statement that are shown

Program = tuple[int, int, int]
Array = numpy.ndarray[Any, Any]

# Distance of data pointers, so that an out-of-bounds pointer does not lead into another argument. Their last bits are
# the real ones: kernels and descriptors look at alignment.
WINDOW_BITS = 48
ALIGNMENT = 4096


@dataclass(frozen=True)
class Interpretation:
    """The result of interpreting a launch.

    Attributes:
        outside: out-of-bounds accesses, the first of each line, argument and operation. An `argument` is the kernel's
            parameter.
        assertions: of tl.device_assert, and of tl.assume; the first failure of each.
        n_outside: the number of all out-of-bounds accesses.
        programs: how many ran.
    """

    outside: tuple[Access, ...]
    assertions: tuple[Access, ...]
    n_outside: int
    programs: int
    seconds: float

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All findings."""
        return (*self.outside, *self.assertions)

    def lines(self) -> list[str]:
        """The findings as text; empty if there are none."""
        return [line for access in self.accesses for line in lines_of(access)]


class AccessCollector:
    """Collects findings, one for each kind, in order."""

    def __init__(self) -> None:
        self._outside: dict[tuple[str, CodeLine, str], Access] = {}
        self._assertions: dict[tuple[CodeLine | None, str], Access] = {}

    def counted(self, kind: str, line: CodeLine, argument: str, count: int) -> bool:
        """Counts further accesses of a kind; False if this is the first."""
        key = (kind, line, argument)
        first = self._outside.get(key)
        if first is not None:
            self._outside[key] = replace(first, count=first.count + count)
        return first is not None

    def add(self, access: Access) -> None:
        """Adds the first out-of-bounds access of its kind."""
        assert access.source is not None
        self._outside[access.kind, access.source, access.argument] = access

    def failed(self, failure: Access) -> None:
        """Adds a failed assertion."""
        key = (failure.source, failure.what)
        first = self._assertions.get(key)
        self._assertions[key] = failure if first is None else replace(first, count=first.count + failure.count)

    def result(self, programs: int, seconds: float) -> Interpretation:
        """The findings so far."""
        outside = tuple(self._outside.values())
        total = sum(access.count for access in outside)
        return Interpretation(outside, tuple(self._assertions.values()), total, programs, seconds)


def current_line() -> CodeLine:
    """The line of the kernel, or of a helper of it, that is being interpreted."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(MACHINERY):
        frame = frame.f_back
    return CodeLine("", 0, "") if frame is None else line_of(frame.f_code.co_filename, frame.f_lineno)


def line_of(file: str, line: int) -> CodeLine:
    """Returns a line of source, with the following ones while a bracket is open."""
    text = ""
    for number in range(line, line + MAX_LINES):
        text = f"{text} {linecache.getline(file, number).strip()}".strip()
        if sum(map(text.count, "([{")) <= sum(map(text.count, ")]}")):
            break
    return CodeLine(file, line, text)


class ArgumentView:
    """One argument: the elements of a tensor's view, in the storage that bounds them.

    Offsets are bytes from the data pointer, int64.
    """

    def __init__(self, index: int, name: str, tensor: torch.Tensor) -> None:
        """
        Raises:
            ValueError: the tensor is not on the CPU.
        """
        if tensor.device.type != "cpu":
            raise ValueError(f"{name} is on {tensor.device}; the interpreter takes CPU tensors")
        self.index = index
        self.name = name
        self.itemsize = tensor.element_size()
        self.shape, self.strides = tuple(tensor.shape), tuple(tensor.stride())
        spans = (step * (size - 1) for size, step in zip(self.shape, self.strides, strict=True))
        self.elements = 1 + sum(spans) if tensor.numel() else 0
        storage = tensor.untyped_storage()
        self.start: int = tensor.storage_offset() * self.itemsize
        self.bytes: Array = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        self.base = numpy.uint64(((index + 1) << WINDOW_BITS) + tensor.data_ptr() % ALIGNMENT)
        self._typed: dict[Any, Array] = {}

    @cached_property
    def contained(self) -> Array | None:
        """bool [elements]: which elements from the data pointer on the view contains; None if it has no gaps."""
        walked = [(size, step) for size, step in zip(self.shape, self.strides, strict=True) if step != 0 and size > 1]
        if self.elements == 0 or math.prod(size for size, _ in walked) == self.elements:
            return None
        present = numpy.zeros(self.elements, dtype=bool)
        sizes, steps = [size for size, _ in walked], [step for _, step in walked]
        as_strided(present, sizes, steps)[...] = True
        return None if present.all() else present

    def inside(self, offsets: Array, width: int) -> Array:
        """bool: where an access of `width` bytes touches only elements of the view."""
        limit = self.elements * self.itemsize - width
        if limit < 0:
            return numpy.zeros(offsets.shape, dtype=bool)
        within: Array = offsets.view(numpy.uint64) <= numpy.uint64(limit)
        if self.contained is not None:
            safe = numpy.where(within, offsets, 0)
            for byte in (*range(0, width, self.itemsize), width - 1):
                within = within & self.contained[(safe + byte) // self.itemsize]
        return within

    def in_storage(self, offset: int, width: int) -> bool:
        """True if an access of `width` bytes lies inside the storage."""
        return self.start + offset >= 0 and self.start + offset + width <= len(self.bytes)

    def beyond(self, element: int) -> int:
        """The number of elements outside the view: > 0 past the end, < 0 before the start, 0 in a gap."""
        return min(element, 0) if element < self.elements else element - self.elements + 1

    def cells(self, offsets: Array, dtype: numpy.dtype[Any]) -> tuple[Array, Array]:
        """An array over the storage and the positions in it of elements at `offsets`, which lie inside."""
        width = dtype.itemsize
        if width > 1 and (offsets & (width - 1)).any():
            return self._scattered(offsets, dtype)
        skipped = self.start % width
        typed = self._typed.get(dtype)
        if typed is None:
            usable = (self.bytes.size - skipped) // width * width
            typed = self._typed[dtype] = self.bytes[skipped : skipped + usable].view(dtype)
        return typed, (offsets + (self.start - skipped)) >> (width.bit_length() - 1)

    def _scattered(self, offsets: Array, dtype: numpy.dtype[Any]) -> tuple[Array, Array]:
        """For accesses that are not aligned: an array of all overlapping elements, one at each byte."""
        count = self.bytes.size - dtype.itemsize + 1
        overlapping: Array = numpy.ndarray((count,), dtype=dtype, buffer=self.bytes, strides=(1,))
        return overlapping, offsets + self.start


@dataclass(frozen=True)
class OutOfBounds:
    """Active positions (row-major, in the block) of one access that lie outside a region's view, or in no region."""

    region: ArgumentView | None
    positions: Array
    offsets: Array
    width: int


Cells = tuple[Array, Array, Array]  # an array over a storage, positions in it, and the positions of the block: all flat


class CheckedMemory:
    """The arguments of one launch."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.regions = [ArgumentView(index, name, tensor) for index, (name, tensor) in enumerate(tensors.items())]

    def named(self, name: str) -> ArgumentView:
        """The region of an argument."""
        return next(region for region in self.regions if region.name == name)

    def load(
        self, pointers: Array, region: int | None, mask: Array | None, dtype: numpy.dtype[Any]
    ) -> tuple[Array, Array | None, list[OutOfBounds]]:
        """The values at the pointers, 0 where the mask is false or the address lies outside.

        Returns: the values; the bytes from the data pointer if all pointers are of one region; what lies outside.
        """
        if region is not None and mask is None:
            owner = self.regions[region]
            offsets = (pointers - owner.base).view(numpy.int64)
            if owner.inside(offsets, dtype.itemsize).all():
                typed, places = owner.cells(offsets, dtype)
                return typed.take(places, mode="clip"), offsets, []
        values = numpy.zeros(pointers.shape, dtype=dtype)
        flat = values.reshape(-1)
        out_of_bounds: list[OutOfBounds] = []
        for typed, places, positions in self._cells(pointers, region, mask, dtype, out_of_bounds):
            flat[positions] = typed.take(places, mode="clip")
        known = None if region is None else (pointers - self.regions[region].base).view(numpy.int64)
        return values, known, out_of_bounds

    def store(self, pointers: Array, region: int | None, mask: Array | None, values: Array) -> list[OutOfBounds]:
        """Writes the values; where several go to one place, the last one stays."""
        out_of_bounds: list[OutOfBounds] = []
        flat = numpy.broadcast_to(values, pointers.shape).reshape(-1)
        for typed, places, positions in self._cells(pointers, region, mask, values.dtype, out_of_bounds):
            typed[places] = flat[positions]
        return out_of_bounds

    def update(
        self,
        pointers: Array,
        region: int | None,
        mask: Array | None,
        values: Array,
        change: Callable[[Array, Array], Array],
    ) -> tuple[Array, list[OutOfBounds]]:
        """Replaces each element by change(element, positions), in the order of the positions.

        Returns: what was there before, 0 where nothing was read; what lies outside.
        """
        out_of_bounds: list[OutOfBounds] = []
        before = numpy.zeros(pointers.shape, dtype=values.dtype)
        flat = before.reshape(-1)
        for typed, places, positions in self._cells(pointers, region, mask, values.dtype, out_of_bounds):
            for turn in _turns(places):
                old = typed[places[turn]]
                flat[positions[turn]] = old
                typed[places[turn]] = change(old, positions[turn])
        return before, out_of_bounds

    def _cells(
        self,
        pointers: Array,
        region: int | None,
        mask: Array | None,
        dtype: numpy.dtype[Any],
        out_of_bounds: list[OutOfBounds],
    ) -> Iterator[Cells]:
        """Yields the elements that the active pointers address; appends the other pointers to `out_of_bounds`."""
        flat = pointers.reshape(-1)
        everywhere = numpy.arange(flat.size)
        active = everywhere if mask is None else numpy.flatnonzero(numpy.broadcast_to(mask, pointers.shape))
        for owner, positions in self._owners(flat, region, active):
            if owner is None:
                out_of_bounds.append(OutOfBounds(None, positions, flat[positions].view(numpy.int64), dtype.itemsize))
                continue
            offsets = (flat[positions] - owner.base).view(numpy.int64)
            inside = owner.inside(offsets, dtype.itemsize)
            if not inside.all():
                outside = ~inside
                out_of_bounds.append(OutOfBounds(owner, positions[outside], offsets[outside], dtype.itemsize))
                offsets, positions = offsets[inside], positions[inside]
            if positions.size:
                yield *owner.cells(offsets, dtype), positions

    def _owners(
        self, pointers: Array, region: int | None, active: Array
    ) -> Iterator[tuple[ArgumentView | None, Array]]:
        if region is not None:
            if active.size:
                yield self.regions[region], active
            return
        half = numpy.uint64(1 << (WINDOW_BITS - 1))
        windows = ((pointers[active] + half) >> numpy.uint64(WINDOW_BITS)).astype(numpy.int64) - 1
        for window in numpy.unique(windows):
            owner = self.regions[window] if 0 <= window < len(self.regions) else None
            yield owner, active[windows == window]


def _turns(places: Array) -> Iterator[Array]:
    """Splits positions in `places` so that no place comes twice in a turn; earlier positions come in earlier turns."""
    order = numpy.argsort(places, kind="stable")
    ordered = places[order]
    first = numpy.concatenate(([True], ordered[1:] != ordered[:-1]))
    if first.all():
        yield numpy.arange(places.size)
        return
    starts = numpy.flatnonzero(first)
    rank = numpy.arange(places.size) - numpy.repeat(starts, numpy.diff(numpy.append(starts, places.size)))
    by_rank = order[numpy.argsort(rank, kind="stable")]
    yield from numpy.split(by_rank, numpy.cumsum(numpy.bincount(rank))[:-1])
