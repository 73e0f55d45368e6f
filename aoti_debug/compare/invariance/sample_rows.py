"""The elements of a recorded tensor that belong to the sample, and their bits in two runs.

The shapes of a buffer at two sizes show which of its dimensions the size is part of: 12 and 192 rows at sizes 1 and 16
are twelve for each sample. They do not show whether the rows of a sample lie together. That is looked at in a third
run, which differs from the second one in the other samples only: rows that change there are not the sample's. What is
not known after that is said to be not known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.diff.element_difference import ElementDifference, element_difference
from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST = 64  # ways in which rows may lie that are tried


class RowsRelation(str, Enum):
    """The relation of the sample's elements in two runs."""

    EQUAL = "equal"
    DIFFERENT = "different"
    MIXED = "mixed"  # they change with the values of the other samples
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SampleExtent:
    """The sample in the varied dimension of one run.

    Attributes:
        size: of the dimension.
        place: index of the sample's first row.
        width: how many rows the sample has.
    """

    size: int
    place: int
    width: int


@dataclass(frozen=True)
class SplitAxis:
    """A dimension of a buffer, taken apart: `outer` times the varied size times `inner` elements; 0 if not varied.

    Attributes:
        before, after: elements beside them, as a token that is put before a sequence; `outer` is 1 then.
    """

    outer: int
    inner: int
    before: int = 0
    after: int = 0

    @property
    def has_more(self) -> bool:
        """True if there are elements beside those of the varied size."""
        return bool(self.before or self.after)


RowMap = tuple[SplitAxis, ...]
"""The dimensions of a buffer, taken apart."""
_WHOLE = SplitAxis(0, 0)


def row_maps(first: Sequence[int], first_size: int, second: Sequence[int], second_size: int) -> tuple[RowMap, ...]:
    """The ways in which the elements of samples may lie in a buffer; () if its shapes do not say.

    Args:
        first, second: its shapes where the varied size is `first_size` and `second_size`, which differ.
    """
    if len(first) != len(second):
        return ()
    axes: list[tuple[SplitAxis, ...]] = []
    for a, b in zip(first, second, strict=True):
        if a == b:
            axes.append((_WHOLE,))
        elif a % first_size == 0 and b == a // first_size * second_size:
            axes.append(tuple(_splits(a // first_size)))
        elif found := _with_more(a, first_size, b, second_size):
            axes.append(found)
        else:
            return ()
    return tuple(itertools.product(*axes)) if math.prod(map(len, axes)) <= _MOST else ()


def _with_more(a: int, first_size: int, b: int, second_size: int) -> tuple[SplitAxis, ...]:
    """The places of rows in a dimension that has a number of elements more than they need; () if it does not say.

    The rows lie together: what has more elements several times has a number of them that divides that of the rows.
    """
    count, rest = divmod(b - a, second_size - first_size)
    more = a - count * first_size
    if rest or count <= 0 or more <= 0 or math.gcd(count, more) > 1:
        return ()
    return SplitAxis(1, count, 0, more), SplitAxis(1, count, more, 0)


def _splits(count: int) -> Iterator[SplitAxis]:
    """The ways to split a dimension of `count` elements for each row, those of a row that lie together first."""
    for outer in range(1, count + 1):
        if count % outer == 0:
            yield SplitAxis(outer, count // outer)


def sample_of(tensor: StoredTensor, shape: Sequence[int], found: RowMap, extent: SampleExtent) -> StoredTensor:
    """The elements of the sample, row-major.

    Args:
        shape: of the tensor.
        found: where the sample's elements lie.
    """
    import numpy as np

    item_bytes = max(tensor.data.size // max(tensor.numel, 1), 1)
    view: NDArray[np.uint8] = tensor.data.reshape(*_split_shape(shape, found, extent), item_bytes)
    rows = view[_region(found, extent)]
    return StoredTensor(np.ascontiguousarray(rows).reshape(-1), tensor.dtype, rows.size // item_bytes)


def with_sample(tensor: PlacedTensor, found: RowMap, sample: StoredTensor) -> bytes:
    """The bytes of a tensor with other elements for the sample, row-major.

    Args:
        sample: of the tensor's dtype, as many elements as the sample has.
    """
    import numpy as np

    stored = tensor.tensor
    item_bytes = max(stored.data.size // max(stored.numel, 1), 1)
    view = np.array(stored.data).reshape(*_split_shape(tensor.shape, found, tensor.extent), item_bytes)
    region = _region(found, tensor.extent)
    view[region] = np.asarray(sample.data).reshape(view[region].shape)
    return view.tobytes()


def _split_shape(shape: Sequence[int], found: RowMap, extent: SampleExtent) -> list[int]:
    sizes = []
    for size, axis in zip(shape, found, strict=True):
        sizes += [size] if axis == _WHOLE or axis.has_more else [axis.outer, extent.size, axis.inner]
    return sizes


def _region(found: RowMap, extent: SampleExtent) -> tuple[slice, ...]:
    every, own = slice(None), slice(extent.place, extent.place + extent.width)
    parts: list[slice] = []
    for axis in found:
        if axis.has_more:
            parts.append(slice(axis.before + own.start * axis.inner, axis.before + own.stop * axis.inner))
        else:
            parts += [every] if axis == _WHOLE else [every, own, every]
    return tuple(parts)


@dataclass(frozen=True)
class PlacedTensor:
    """A tensor of one run, with the place of the sample in that run.

    Attributes:
        shape: of the tensor.
    """

    tensor: StoredTensor
    shape: tuple[int, ...]
    extent: SampleExtent

    def sample(self, found: RowMap) -> StoredTensor:
        """The elements of the sample."""
        return sample_of(self.tensor, self.shape, found, self.extent)

    def fits(self, found: RowMap) -> bool:
        """True if the shape is the one that the varied size has here."""
        return len(self.shape) == len(found) and all(
            axis == _WHOLE or size == axis.outer * self.extent.size * axis.inner + axis.before + axis.after
            for size, axis in zip(self.shape, found, strict=True)
        )


@dataclass(frozen=True)
class RowsDifference:
    """The sample's elements of one tensor in two runs.

    Attributes:
        elements: how they differ; None unless they are DIFFERENT.
        reason: why it is UNKNOWN.
    """

    relation: RowsRelation
    elements: ElementDifference | None = None
    reason: str = ""


def maps_of(alone: PlacedTensor, among: PlacedTensor, control: PlacedTensor | None) -> tuple[RowMap, ...] | None:
    """The places where the sample's elements may lie, as far as the control does not exclude them.

    Args:
        alone, among: the same tensor at two sizes.
        control: as `among`, with other values in the other rows; None without.

    Returns:
        () if the others change them all; None if the shapes do not say where they may lie.
    """
    found = row_maps(alone.shape, alone.extent.size, among.shape, among.extent.size)
    if not found:
        return None
    if control is None or control.shape != among.shape:
        return found
    kept = tuple(one for one in found if same_bytes(among.sample(one), control.sample(one)))
    has_more = any(axis.has_more for one in found for axis in one)
    return None if has_more and not kept else kept  # elements beside them may lie in other places, too


def same_bytes(a: StoredTensor, b: StoredTensor) -> bool:
    """True if two tensors hold the same bytes."""
    import numpy as np

    return a.dtype == b.dtype and np.array_equal(a.data, b.data)


def rows_difference(alone: PlacedTensor, among: PlacedTensor, maps: Sequence[RowMap] | None) -> RowsDifference:
    """Compares the sample's elements of a tensor in two runs.

    Args:
        maps: as of `maps_of`.
    """
    if maps is None or not all(among.fits(one) for one in maps):
        shapes = [f"[{', '.join(map(str, placed.shape))}]" for placed in (alone, among)]
        return RowsDifference(
            RowsRelation.UNKNOWN, reason=f"its shapes {shapes[0]} and {shapes[1]} do not say what belongs to the sample"
        )
    if not maps:
        return RowsDifference(RowsRelation.MIXED)
    equal = [one for one in maps if same_bytes(alone.sample(one), among.sample(one))]
    if len(equal) == len(maps):
        return RowsDifference(RowsRelation.EQUAL)
    if equal:
        return RowsDifference(RowsRelation.UNKNOWN, reason="the sample's elements may lie in more than one way")
    first, second = alone.sample(maps[0]), among.sample(maps[0])
    if (first.dtype, first.numel) != (second.dtype, second.numel):
        return RowsDifference(RowsRelation.DIFFERENT)
    return RowsDifference(RowsRelation.DIFFERENT, element_difference(first, second))


def belongs_to_several(maps: Sequence[RowMap] | None) -> bool:
    """True if a tensor has the varied size in several dimensions: it has elements of the sample and others at once."""
    return any(sum(axis != _WHOLE for axis in one) > 1 for one in maps or ())
