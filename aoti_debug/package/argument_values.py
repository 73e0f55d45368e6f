"""The argument values of a launch: tensors with their layout, numbers, and absent values."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from typing import TypeAlias

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import CType


@dataclass(frozen=True)
class Layout:
    """The memory layout of a tensor; shape and strides are empty if `kind` is not "strided"."""

    dtype: str  # "float32"
    device: str  # "cpu", "cuda:0"
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # elements
    storage_offset: int  # elements
    storage_bytes: int
    item_bytes: int  # 0: unknown dtype
    kind: str = "strided"

    @cached_property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @cached_property
    def bytes(self) -> int:
        """The size in bytes of the logical tensor."""
        return self.numel * self.item_bytes

    @cached_property
    def extent_bytes(self) -> int:
        """Bytes from the start of element 0 to the end of the last one in memory; 0 if it is empty or not strided."""
        return extent_elements(self.shape, self.strides) * self.item_bytes if self.kind == "strided" else 0

    def row_major(self, distance: int) -> int | None:
        """The row-major index of the element `distance` elements after element 0 in memory; None if there is none."""
        coordinates = [0] * len(self.shape)
        for dim in sorted(range(len(self.shape)), key=lambda d: -self.strides[d]):
            if self.strides[dim] > 0 and self.shape[dim] > 1:
                coordinates[dim] = min(distance // self.strides[dim], self.shape[dim] - 1)
                distance -= coordinates[dim] * self.strides[dim]
        return None if distance else ravel(coordinates, self.shape)

    @cached_property
    def contiguous(self) -> bool:
        """True if the elements are row-major in memory, without gaps."""
        return self.numel == 0 or is_row_major(self.shape, self.strides)


@dataclass(frozen=True)
class Tensor:
    """A tensor argument."""

    data_ptr: int  # address of element 0
    layout: Layout

    @property
    def storage_ptr(self) -> int:
        """The address of the storage's first byte; arguments with the same address share memory."""
        return self.data_ptr - self.layout.storage_offset * self.layout.item_bytes


@dataclass(frozen=True)
class Number:
    """A scalar argument."""

    value: int | float | bool
    type: CType


class Absent(str, Enum):
    """A value that is neither a tensor nor a number."""

    UNSET = "unset"  # an output slot before its launch
    NULL = "none"
    TEXT = "text"  # the literal is in the manifest
    OPAQUE = "opaque"
    UNDEFINED = "undefined"  # a handle to an undefined tensor


Value: TypeAlias = Tensor | Number | Absent


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if strides (in elements) are those of elements in row-major order without gaps."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def extent_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The distance in elements from the first element in memory to the end of the last one; 0 if there are none."""
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def ravel(coordinates: Sequence[int], shape: Sequence[int]) -> int:
    """The row-major index of coordinates."""
    element = 0
    for size, coordinate in zip(shape, coordinates, strict=True):
        element = element * size + coordinate
    return element


def unravel(element: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The coordinates of a row-major index."""
    coordinates: list[int] = []
    for size in reversed(shape):
        element, coordinate = divmod(element, size)
        coordinates.insert(0, coordinate)
    return tuple(coordinates)


_UNSIGNED = {CType.U8, CType.U16, CType.U32, CType.U64, CType.ADDRESS, CType.HANDLE}


def number(bits: int, type_: CType) -> Number:
    """Decodes an AotiDebugValue from its 64-bit pattern."""
    if type_ in (CType.F32, CType.F64):
        value: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
        return Number(value, type_)
    if type_ is CType.BOOL:
        return Number(bits != 0, type_)
    if type_ in _UNSIGNED:
        return Number(bits, type_)
    return Number(bits - (1 << 64) if bits >> 63 else bits, type_)
