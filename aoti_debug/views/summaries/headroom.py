"""The distance of values from the overflow and the underflow of low-precision dtypes."""

from __future__ import annotations

import math

from aoti_debug.base import dtypes
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.rundir.summaries import CallSample, Series, finite


@dataclass(frozen=True)
class Precision:
    """A low-precision dtype.

    Attributes:
        name: for people: "fp16".
        dtype: torch's name.
        smallest: the smallest normal magnitude; below it, precision is lost bit by bit.
    """

    name: str
    dtype: str
    smallest: float

    @property
    def largest(self) -> float:
        """The largest finite magnitude."""
        dtype = dtypes.of_name(self.dtype)
        assert dtype is not None
        assert dtype.largest is not None
        return dtype.largest


PRECISIONS = (
    Precision("fp16", "float16", 2.0**-14),
    Precision("bf16", "bfloat16", 2.0**-126),
    Precision("fp8 e4m3", "float8_e4m3fn", 2.0**-6),
    Precision("fp8 e5m2", "float8_e5m2", 2.0**-14),
)


def overflow_headroom(sample: CallSample, precision: Precision) -> float:
    """The bits by which the largest magnitude can grow before it overflows; negative: it overflows.

    NaN without finite elements, infinite if all are zero.
    """
    return _bits(precision.largest, sample.absmax)


def underflow_headroom(sample: CallSample, precision: Precision) -> float:
    """The bits by which a typical magnitude, the root mean square, can shrink and still be a normal number.

    Negative: a typical element has lost precision. NaN without finite elements or if all are zero.
    """
    bits = -_bits(precision.smallest, sample.rms)
    return math.nan if math.isinf(bits) else bits


def least_headroom(series: Series, precision: Precision) -> tuple[float, float] | None:
    """The least headroom of all calls, of overflow and of underflow; None for other than real floats."""
    if not series.is_floating:
        return None
    over = min(finite(overflow_headroom(sample, precision) for sample in series.samples), default=math.nan)
    under = min(finite(underflow_headroom(sample, precision) for sample in series.samples), default=math.nan)
    return over, under


def _bits(limit: float, magnitude: float) -> float:
    if math.isnan(magnitude):
        return math.nan
    return math.log2(limit) - math.log2(magnitude) if magnitude else math.inf
