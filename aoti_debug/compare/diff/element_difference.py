"""The elements in which two saved tensors differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.base.dtypes import Category
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor, numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 1 << 20  # elements that are looked at at a time
_BITS = {2: "<i2", 4: "<i4", 8: "<i8"}


@dataclass(frozen=True, kw_only=True)
class ElementDifference:
    """The difference of two tensors of one dtype and number of elements.

    Attributes:
        elements, different: the number of elements, and of those whose bytes differ.
        first: the row-major index of the first of them; -1 without any, as of the worst.
        worst: of the one that differs most: in ULP, or in absolute value where the dtype has none.
        values: of that element, in the first and the second tensor; None if they cannot be read as numbers.
        max_ulp: the distance of that element in units in the last place: numbers of the dtype between the two; inf
            where one of them is NaN; None for a dtype that is not real and floating, of 16 to 64 bits.
        max_absolute, max_relative: largest difference, and largest difference over the larger of the two; inf where
            only one is finite; None if they cannot be read as numbers.
    """

    elements: int
    different: int
    first: int = -1
    worst: int = -1
    values: tuple[Any, Any] | None = None
    max_ulp: float | None = None
    max_absolute: float | None = None
    max_relative: float | None = None

    @property
    def nan_in(self) -> tuple[str, ...]:
        """The sides that are NaN in the worst element: "a", "b"."""
        sides = () if self.values is None else zip("ab", self.values, strict=True)
        return tuple(side for side, value in sides if value != value)


def element_difference(a: StoredTensor, b: StoredTensor) -> ElementDifference:
    """Compares two tensors of the same dtype and number of elements, part by part.

    Raises:
        ValueError: the dtype or the number of elements differs.
    """
    if (a.dtype, a.numel) != (b.dtype, b.numel):
        raise ValueError(f"{a.dtype} of {a.numel} elements and {b.dtype} of {b.numel}")
    parts = [_part(a, b, start) for start in range(0, a.numel, _CHUNK)]
    differing = [part for part in parts if part.different]
    if not differing:
        return ElementDifference(elements=a.numel, different=0)
    worst = max(differing, key=_size)
    return ElementDifference(
        elements=a.numel,
        different=sum(part.different for part in differing),
        first=differing[0].first,
        worst=worst.worst,
        values=worst.values,
        max_ulp=worst.max_ulp,
        max_absolute=_largest([part.max_absolute for part in differing]),
        max_relative=_largest([part.max_relative for part in differing]),
    )


def element_sizes(a: StoredTensor, b: StoredTensor) -> NDArray[np.float64]:
    """The difference of each element, row-major: in ULP, or in absolute value where the dtype has none.

    0 where the bytes are equal; 1 where they are not, but the numbers are (0 and -0) or cannot be read; inf where one
    of two elements is NaN.

    Args:
        a, b: of the same dtype and number of elements.
    """
    import numpy as np

    sizes = np.zeros(a.numel, np.float64)
    for start in range(0, a.numel, _CHUNK):
        found = _differing(a, b, start)
        if found.indices.size:
            known = 1.0 if found.sizes is None else np.where(found.sizes == 0, 1.0, found.sizes)
            sizes[start + found.indices] = known
    return sizes


def _size(part: ElementDifference) -> float:
    return next((size for size in (part.max_ulp, part.max_absolute) if size is not None), 0.0)


def _largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


@dataclass(frozen=True)
class _Differing:
    """The elements of a part of two tensors whose bytes differ.

    Attributes:
        indices: in the part.
        values: in the first and the second tensor; () if they cannot be read as numbers.
    """

    indices: NDArray[Any]
    values: tuple[NDArray[Any], ...] = ()
    ulp: NDArray[Any] | None = None
    absolute: NDArray[Any] | None = None

    @property
    def sizes(self) -> NDArray[Any] | None:
        """How much they differ: in ULP, or in absolute value where the dtype has none."""
        return self.absolute if self.ulp is None else self.ulp


def _differing(a: StoredTensor, b: StoredTensor, start: int) -> _Differing:
    import numpy as np

    stop = min(start + _CHUNK, a.numel)
    first, second = (_bytes(tensor, start, stop) for tensor in (a, b))
    indices = np.flatnonzero((first != second).any(axis=1))
    if not indices.size:
        return _Differing(indices)
    raw = (first[indices].tobytes(), second[indices].tobytes())
    try:
        values = tuple(numbers(data, a.dtype) for data in raw)
    except TypeError:
        values = ()
    with np.errstate(all="ignore"):
        return _Differing(indices, values, _ulp(*raw, a.dtype), _absolute(*values) if values else None)


def _part(a: StoredTensor, b: StoredTensor, start: int) -> ElementDifference:
    import numpy as np

    elements = min(start + _CHUNK, a.numel) - start
    found = _differing(a, b, start)
    indices, values, absolute = found.indices, found.values, found.absolute
    if not indices.size:
        return ElementDifference(elements=elements, different=0)
    with np.errstate(all="ignore"):
        relative = None if absolute is None else _relative(absolute, *values)
    worst = 0 if found.sizes is None else int(np.argmax(found.sizes))
    return ElementDifference(
        elements=elements,
        different=int(indices.size),
        first=start + int(indices[0]),
        worst=start + int(indices[worst]),
        values=(values[0][worst].item(), values[1][worst].item()) if values else None,
        max_ulp=None if found.ulp is None else float(found.ulp[worst]),
        max_absolute=None if absolute is None else float(absolute.max()),
        max_relative=None if relative is None else float(relative.max()),
    )


def _bytes(tensor: StoredTensor, start: int, stop: int) -> NDArray[np.uint8]:
    return tensor.data.reshape(tensor.numel, -1)[start:stop]


def _ulp(first: bytes, second: bytes, dtype: str) -> NDArray[Any] | None:
    """The distance of two numbers in numbers of the dtype, for each element; None for a dtype that has none."""
    import numpy as np

    info = dtypes.of_name(dtype)
    if info is None or info.category is not Category.FLOATING or info.item_bytes not in _BITS:
        return None
    ordered = []
    for data in (first, second):
        bits = np.frombuffer(data, _BITS[info.item_bytes]).astype(object if info.item_bytes == 8 else np.int64)
        lowest = -(1 << (8 * info.item_bytes - 1))
        ordered.append(np.where(bits < 0, lowest - bits, bits))
    distance = np.abs(ordered[0] - ordered[1]).astype(np.float64)
    values = [numbers(data, dtype) for data in (first, second)]
    return np.where(np.isnan(values[0]) | np.isnan(values[1]), math.inf, distance)


def _absolute(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    if first.dtype.kind in "iu":  # exact: int64 has numbers that float64 lacks
        exact: NDArray[Any] = np.abs(first.astype(object) - second.astype(object)).astype(np.float64)
        return exact
    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    difference = np.abs(first.astype(wide) - second.astype(wide))
    return np.where(np.isnan(difference), np.where(first == second, 0.0, math.inf), difference)


def _relative(absolute: NDArray[Any], first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    largest = np.maximum(np.abs(first.astype(wide)), np.abs(second.astype(wide)))
    relative = np.where(absolute == 0, 0.0, absolute / largest)
    return np.where(np.isnan(relative), math.inf, relative)
