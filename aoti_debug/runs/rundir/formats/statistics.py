"""Statistics of one tensor, recorded by the runtime at level 2 or computed from a saved tensor."""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK = 1 << 22  # elements converted to double at a time
_BITS, _DOUBLES, _SIGNED = struct.Struct("<2Q"), struct.Struct("<2d"), struct.Struct("<2q")


class Statistics(NamedTuple):
    """Statistics of a tensor: counts are over all elements, the rest over the finite ones.

    A complex element counts once, by its magnitude. A named tuple, as the records of a journal are.
    """

    numel: int
    n_nan: int
    n_pos_inf: int
    n_neg_inf: int
    n_zero: int
    min: int | float | None  # None: no finite element
    max: int | float | None
    min_index: int  # row-major, of the first occurrence
    max_index: int
    mean: float  # NaN: no finite element
    std: float  # of the population

    @property
    def is_finite(self) -> bool:
        """True if no element is NaN or an infinity."""
        return not (self.n_nan or self.n_pos_inf or self.n_neg_inf)

    @property
    def n_finite(self) -> int:
        """The number of finite elements."""
        return self.numel - self.n_nan - self.n_pos_inf - self.n_neg_inf


def extrema(low: int, high: int, integer: int) -> tuple[int | float, int | float]:
    """Minimum and maximum of a record; `integer` is the type of their bits: 0 double, 1 int64, 2 uint64."""
    if integer == 2:
        return low, high
    least, greatest = (_SIGNED if integer == 1 else _DOUBLES).unpack(_BITS.pack(low, high))
    return least, greatest


def tensor_statistics(tensor: StoredTensor) -> Statistics:
    """Statistics of a tensor.

    Raises:
        TypeError: the elements of its dtype cannot be read as numbers (quantized, packed).
    """
    starts = range(0, tensor.numel, _CHUNK)
    tensor.numbers(0, 0)  # its dtype has numbers

    @lru_cache(maxsize=1)  # a tensor of one part is read once
    def part_at(start: int) -> _Part:
        return _Part(_comparable(tensor.numbers(start, start + _CHUNK)), start)

    counts = [0, 0, 0, 0]
    low: tuple[Any, int] | None = None
    high: tuple[Any, int] | None = None
    for start in starts:
        part = part_at(start)
        counts = [a + b for a, b in zip(counts, part.counts(), strict=True)]
        if (part_low := part.lowest()) and (low is None or part_low[0] < low[0]):
            low = part_low
        if (part_high := part.highest()) and (high is None or part_high[0] > high[0]):
            high = part_high
    n_nan, n_pos_inf, n_neg_inf, n_zero = counts
    if low is None or high is None:
        return Statistics(tensor.numel, n_nan, n_pos_inf, n_neg_inf, n_zero, None, None, 0, 0, math.nan, math.nan)
    largest = max(abs(float(low[0])), abs(float(high[0])))
    scale = 2.0 ** (math.frexp(largest)[1] - 1) if largest > 1e100 else 1.0
    moments = _Moments()
    for start in starts:
        moments.add(part_at(start).finite() / scale)
    return Statistics(
        numel=tensor.numel,
        n_nan=n_nan,
        n_pos_inf=n_pos_inf,
        n_neg_inf=n_neg_inf,
        n_zero=n_zero,
        min=low[0].item(),
        max=high[0].item(),
        min_index=low[1],
        max_index=high[1],
        mean=moments.mean * scale,
        std=math.sqrt(moments.squares / moments.count) * scale,
    )


class _Part:
    """Consecutive elements as an array of float64, int64 or uint64."""

    def __init__(self, values: Any, start: int) -> None:
        import numpy as np

        self.values = values
        self.start = start
        is_finite = np.isfinite(values)
        self.finite_positions = None if is_finite.all() else np.flatnonzero(is_finite)  # None: all

    def counts(self) -> tuple[int, int, int, int]:
        """The counts of NaN, +Inf, -Inf and zeros."""
        import numpy as np

        zeros = self.values.size - int(np.count_nonzero(self.values))
        if self.finite_positions is None:
            return 0, 0, 0, zeros
        above, below = int((self.values == math.inf).sum()), int((self.values == -math.inf).sum())
        return self.values.size - len(self.finite_positions) - above - below, above, below, zeros

    def finite(self) -> Any:
        return self.values if self.finite_positions is None else self.values[self.finite_positions]

    def lowest(self) -> tuple[Any, int] | None:
        finite = self.finite()
        return self._at(int(finite.argmin())) if finite.size else None

    def highest(self) -> tuple[Any, int] | None:
        finite = self.finite()
        return self._at(int(finite.argmax())) if finite.size else None

    def _at(self, position: int) -> tuple[Any, int]:
        index = position if self.finite_positions is None else int(self.finite_positions[position])
        return self.values[index], self.start + index


class _Moments:
    """The mean and the sum of squared deviations of all added values, merged part by part."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0

    def add(self, values: Any) -> None:
        if values.size == 0:
            return
        mean = float(values.mean())
        delta, count = mean - self.mean, self.count + values.size
        self.squares += float(((values - mean) ** 2).sum()) + delta * delta * self.count * values.size / count
        self.mean += delta * values.size / count
        self.count = count


def _comparable(values: NDArray[Any]) -> NDArray[Any]:
    """The values as float64, int64 or uint64; complex numbers by their magnitude."""
    import numpy as np

    if values.dtype.kind == "c":
        magnitudes: NDArray[Any] = np.abs(values.astype(np.complex128))
        return magnitudes
    with np.errstate(invalid="ignore"):  # memory that was never written may hold signalling NaNs
        return values.astype({"f": "float64", "u": "uint64"}.get(values.dtype.kind, "int64"))
