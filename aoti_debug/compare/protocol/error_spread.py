"""The distribution of an output's errors: how large they are, and where in the tensor they lie. Of bounded size."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass

MAX_ROWS, MAX_COLUMNS = 48, 64  # cells of a map
SMALLEST, LARGEST = -2, 40  # exponents of two: the histogram's bins of ULP, smaller and larger errors at its ends
MAX_RANGES = 8  # of indices, in one dimension


@dataclass(frozen=True)
class ErrorSpread:
    """The distribution of an output's errors.

    Attributes:
        ulp: the number of elements by their error in ULP: those without any, those up to 2^SMALLEST, and in each
            further bin those up to twice as much; () for integers and booleans.
        misplaced: NaN and infinities that stand where none should, and numbers that stand where one should.
        rows, columns: the size of the map.
        map: the largest error in each cell, as a multiple of what is allowed there, row-major. The cells divide the
            last two dimensions evenly; the errors of all other dimensions lie on top of each other.
        ranges: for each dimension the first and last index of each range of indices that have wrong elements; of more
            than MAX_RANGES, the first index of the first one and the last of the last one.
    """

    ulp: tuple[int, ...]
    misplaced: int
    rows: int
    columns: int
    map: tuple[float, ...]
    ranges: tuple[tuple[tuple[int, int], ...], ...]
