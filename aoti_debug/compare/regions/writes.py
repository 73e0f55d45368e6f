"""The stores in the source of a kernel, and the launch that wrote each byte of memory last."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from aoti_debug.package.manifest import Kernel, Manifest
from aoti_debug.package.program_graphs import MODEL
from aoti_debug.runs.diagnosis.dataflow import ByteRange

T = TypeVar("T")
_TRITON = (r"tl\.(?:store|atomic_\w+)\(\s*{p}\b",)
_CPP = (
    r"\bstore\(\s*{p}\b",  # tmp5.store(in_out_ptr0 + …)
    r"\b{p}\[(?:[^\[\]]|\[[^\[\]]*\])*\]\s*(?:[-+*/|&^]|<<|>>)?=(?!=)",  # in_out_ptr0[…] = …
    r"\*\s*\(\s*{p}\b[^;=]*\)\s*=(?!=)",  # *(in_out_ptr0 + …) = …
    r"&\s*\(?\s*{p}\b",  # atomic_add(&in_out_ptr0[…], …), &(in_out_ptr0[…])
    r"[(,]\s*{p}\s*(?:\+[^,;]*)?[,)]",  # transpose_mxn<…>(…, in_out_ptr0 + …, …)
)
_LOAD = r"\b(?:loadu|load|transpose_mxn<[^;\n]*?>)\(\s*{p}\b"  # transpose_mxn reads its first pointer


def stores_to(kernel: Kernel, parameter: str) -> bool:
    """True if a kernel may store to what a parameter points to, under this name.

    A C++ kernel may have other names for it (`auto out_ptr1 = in_out_ptr0`): for what was in the memory before.
    """
    name = re.escape(parameter)
    if kernel.language == "triton":
        return any(re.search(pattern.format(p=name), kernel.source) for pattern in _TRITON)
    source = re.sub(_LOAD.format(p=name), "load(", kernel.source)
    return any(re.search(pattern.format(p=name), source) for pattern in _CPP)


def begins_with_a_store(kernel: Kernel, parameter: str) -> bool:
    """True if a C++ kernel stores a partial result to a parameter before it reads that (`auto out_ptr1 = in_out_ptr0`).

    What was in the memory does not matter then. A name that begins with `in_ptr` is for reading it.
    """
    alias = rf"\bauto out_ptr\w* = {re.escape(parameter)};"
    return kernel.language == "cpp" and re.search(alias, kernel.source) is not None


def buffer_strides(manifest: Manifest, function: str = MODEL) -> Mapping[str, tuple[str, ...]]:
    """The strides of the buffers of a function, of inputs and of weights, as expressions, by name."""
    strides = {promise.name: promise.strides for promise in manifest.promises if promise.function == function}
    return strides | {constant.name: tuple(map(str, constant.strides)) for constant in manifest.constants}


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
