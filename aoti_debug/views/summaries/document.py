"""The summaries of a run as one JSON object (docs/summaries.schema.json).

Non-finite numbers are strings: "nan", "inf", "-inf".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.summaries import CallSample, Series, Summaries
from aoti_debug.views.summaries.measures import PRECISIONS, drift, least_headroom

FORMAT = 1


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
            dtype: {"overflow": _number(bits[0]), "underflow": _number(bits[1])}
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
        "min": _number(sample.min),
        "max": _number(sample.max),
        "mean": _number(sample.mean),
        "std": _number(sample.std),
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
