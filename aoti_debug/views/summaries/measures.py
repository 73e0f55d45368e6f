"""Measures of tensors over the calls: drift, headroom in low precision; as JSON: docs/summaries.schema.json.

Non-finite numbers are strings: "nan", "inf", "-inf".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from aoti_debug.base.dtypes import FLOAT_FORMATS
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.summaries import CallSample, Series, Summaries, finite

MIN_CALLS = 8
_MEAN_SHIFT = 0.5  # standard deviations of the elements
_SPREAD_BITS = 1.0  # doubled or halved
_SHARE = 0.1  # of the elements
_NOISE = 4.0  # times the variation from one call to the next
_DEVIATION = 1.4826  # of a normal distribution, per median absolute deviation
FORMAT = 1


def drift(series: Series) -> tuple[str, ...]:
    """The ways in which a tensor has changed from the first quarter of the calls to the last; () if it has not.

    A change counts if it is large for the tensor (its mean moved by half a standard deviation, its standard deviation
    or largest magnitude doubled or halved, a tenth of its elements became zeros) and more than four times the variation
    from one call to the next. Non-finite elements count as soon as they appear.
    """
    samples = series.samples
    found = _nonfinite(samples, series.unit)
    if len(samples) < MIN_CALLS:
        return found
    scale = statistics.median([*finite(sample.std for sample in samples)] or [0.0])
    mean = _change([sample.mean for sample in samples])
    if scale and abs(mean) >= _MEAN_SHIFT * scale:
        found += (f"mean moved by {mean / scale:+.2g} std",)
    for name, values in (("std", [s.std for s in samples]), ("absmax", [s.absmax for s in samples])):
        bits = _change([_log2(value) for value in values])
        if abs(bits) >= _SPREAD_BITS:
            found += (f"{name} {2**bits:.3g} times",)
    zeros = _change([sample.zeros for sample in samples])
    if abs(zeros) >= _SHARE:
        found += (f"zeros {zeros:+.0%}",)
    return found


def _nonfinite(samples: Sequence[CallSample], unit: str) -> tuple[str, ...]:
    """Non-finite elements that were not there in the first call, or replay."""
    begun = next((sample for sample in samples if sample.nonfinite), None)
    return () if begun is None or begun is samples[0] else (f"not finite from {unit} {begun.number} on",)


def _change(values: Sequence[float]) -> float:
    """The change of the median from the first quarter to the last, if the variation does not explain it; 0 if it does.

    The variation is that from one call to the next, which a trend does not enlarge, as a standard deviation.
    """
    quarter = len(values) // 4
    before, after = ([*finite(part)] for part in (values[:quarter], values[-quarter:]))
    if not before or not after:
        return 0.0
    change = statistics.median(after) - statistics.median(before)
    steps = [abs(b - a) for a, b in pairwise(finite(values))]
    variation = _DEVIATION * statistics.median(steps) / math.sqrt(2)
    return change if abs(change) > _NOISE * variation else 0.0


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else math.nan


@dataclass(frozen=True)
class Precision:
    """A low-precision dtype.

    Attributes:
        name: for people: "fp16".
        dtype: torch's name.
    """

    name: str
    dtype: str

    @property
    def smallest(self) -> float:
        """The smallest normal magnitude; below it, precision is lost bit by bit."""
        return FLOAT_FORMATS[self.dtype].least_normal

    @property
    def largest(self) -> float:
        """The largest finite magnitude."""
        return FLOAT_FORMATS[self.dtype].largest


PRECISIONS = (
    Precision("fp16", "float16"),
    Precision("bf16", "bfloat16"),
    Precision("fp8 e4m3", "float8_e4m3fn"),
    Precision("fp8 e5m2", "float8_e5m2"),
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


def document(run: RunDir, found: Summaries, chosen: Sequence[Series]) -> dict[str, Any]:
    """The JSON object of the summaries of a run.

    Args:
        chosen: the tensors to include.
    """
    return {
        "format": FORMAT,
        "run": run.path.name,
        "path": str(run.path),
        "calls": found.calls,
        "replays": [{"captured_call": call, "replays": count} for call, count in found.replays.items()],
        "asked": found.asked,
        "every": found.every,
        "lost": found.lost,
        "missed": found.missed,
        "tensors": [_tensor(series) for series in chosen],
    }


def _tensor(series: Series) -> dict[str, Any]:
    headroom = {precision.dtype: least_headroom(series, precision) for precision in PRECISIONS}
    return {
        "launch": series.launch,
        "captured_call": series.captured_call,
        "site": series.site,
        "kernel": series.kernel,
        "argument": series.argument,
        "modules": list(series.modules),
        "dtype": series.dtype,
        "drift": list(drift(series)),
        "headroom": {
            dtype: {"overflow": json_data.number(bits[0]), "underflow": json_data.number(bits[1])}
            for dtype, bits in headroom.items()
            if bits is not None
        },
        "samples": [_sample(sample) for sample in series.samples],
    }


def _sample(sample: CallSample) -> dict[str, Any]:
    return {
        "call": sample.call,
        "replay": sample.replay,
        "numel": sample.numel,
        "nan": sample.n_nan,
        "pos_inf": sample.n_pos_inf,
        "neg_inf": sample.n_neg_inf,
        "zeros": sample.n_zero,
        "min": json_data.number(sample.min),
        "max": json_data.number(sample.max),
        "mean": json_data.number(sample.mean),
        "std": json_data.number(sample.std),
    }
