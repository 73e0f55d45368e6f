"""The launch that wrote each byte of memory last."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from aoti_debug.runs.diagnosis.dataflow import ByteRange

T = TypeVar("T")


@dataclass
class _Memory(Generic[T]):
    """Disjoint ranges of one device, in order of their addresses, with the number of their last write."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


class LastWrites(Generic[T]):
    """The last write of each byte."""

    def __init__(self) -> None:
        self._writes: list[tuple[ByteRange, T]] = []
        self._devices: dict[str, _Memory[T]] = defaultdict(_Memory)

    def add(self, span: ByteRange, write: T) -> None:
        """Notes a write, later than all before."""
        memory, number = self._devices[span.device], len(self._writes)
        self._writes.append((span, write))
        first, last = self._overlapping(memory, span)
        pieces: list[tuple[int, int, int]] = []
        for i in range(first, last):
            begin, end, old = memory.begins[i], memory.ends[i], memory.numbers[i]
            pieces += [(begin, span.begin, old)] if begin < span.begin else []
            pieces += [(span.end, end, old)] if end > span.end else []
        pieces.append((span.begin, span.end, number))
        pieces.sort()
        memory.begins[first:last] = [begin for begin, _, _ in pieces]
        memory.ends[first:last] = [end for _, end, _ in pieces]
        memory.numbers[first:last] = [number for _, _, number in pieces]

    def covering(self, span: ByteRange) -> T | None:
        """The last write to any of these bytes, if it wrote all of them; otherwise None."""
        memory = self._devices.get(span.device)
        if memory is None:
            return None
        first, last = self._overlapping(memory, span)
        if first == last:
            return None
        written, write = self._writes[max(memory.numbers[first:last])]
        return write if written.covers(span) else None

    def to_any_of(self, span: ByteRange) -> tuple[T, ...]:
        """The writes that last wrote some of these bytes."""
        memory = self._devices.get(span.device)
        if memory is None:
            return ()
        first, last = self._overlapping(memory, span)
        return tuple(self._writes[number][1] for number in memory.numbers[first:last])

    @staticmethod
    def _overlapping(memory: _Memory[T], span: ByteRange) -> tuple[int, int]:
        return bisect_right(memory.ends, span.begin), bisect_left(memory.begins, span.end)
