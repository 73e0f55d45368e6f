"""The elements in which two saved tensors differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoti_debug import dtypes
from aoti_debug.dtypes import Category
from aoti_debug.rundir.stored_tensor import StoredTensor, numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 1 << 20  # elements that are looked at at a time
_BITS = {2: "<i2", 4: "<i4", 8: "<i8"}


@dataclass(frozen=True)
class ElementDifference:
    """The difference of two tensors of one dtype and number of elements.

    Attributes:
        elements, different: the number of elements, and of those whose bytes differ.
        first: the row-major index of the first of them.
        worst: of the one that differs most: in ULP, or in absolute value where the dtype has none.
        values: of that element, in the first and the second tensor; None if they cannot be read as numbers.
        max_ulp: the distance of that element in units in the last place: numbers of the dtype between the two; inf
            where one of them is NaN; None for a dtype that is not real and floating, of 16 to 64 bits.
        max_absolute, max_relative: largest difference, and largest difference over the larger of the two; inf where
            only one is finite; None if they cannot be read as numbers.
    """

    elements: int
    different: int
    first: int
    worst: int
    values: tuple[Any, Any] | None
    max_ulp: float | None
    max_absolute: float | None
    max_relative: float | None


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
        return ElementDifference(a.numel, 0, -1, -1, None, None, None, None)
    worst = max(differing, key=_size)
    return ElementDifference(
        a.numel,
        sum(part.different for part in differing),
        differing[0].first,
        worst.worst,
        worst.values,
        worst.max_ulp,
        _largest([part.max_absolute for part in differing]),
        _largest([part.max_relative for part in differing]),
    )


def _size(part: ElementDifference) -> float:
    return next((size for size in (part.max_ulp, part.max_absolute) if size is not None), 0.0)


def _largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _part(a: StoredTensor, b: StoredTensor, start: int) -> ElementDifference:
    import numpy as np

    stop = min(start + _CHUNK, a.numel)
    first, second = (_bytes(tensor, start, stop) for tensor in (a, b))
    differs = (first != second).any(axis=1)
    indices = np.flatnonzero(differs)
    if not indices.size:
        return ElementDifference(stop - start, 0, -1, -1, None, None, None, None)
    raw = (first[indices].tobytes(), second[indices].tobytes())
    ulp = _ulp(*raw, a.dtype)
    try:
        values = tuple(numbers(data, a.dtype) for data in raw)
    except TypeError:
        values = ()
    with np.errstate(all="ignore"):
        absolute = _absolute(*values) if values else None
        relative = None if absolute is None else _relative(absolute, *values)
    sizes = ulp if ulp is not None else absolute
    worst = 0 if sizes is None else int(np.argmax(sizes))
    return ElementDifference(
        stop - start,
        int(indices.size),
        start + int(indices[0]),
        start + int(indices[worst]),
        (values[0][worst].item(), values[1][worst].item()) if values else None,
        None if ulp is None else float(ulp[worst]),
        None if absolute is None else float(absolute.max()),
        None if relative is None else float(relative.max()),
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
