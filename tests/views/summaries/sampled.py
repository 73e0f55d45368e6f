"""Series of samples for tests."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from aoti_debug.runs.rundir.summaries import CallSample, Series


def sample(call: int = 0, *, replay: int | None = None, **numbers: Any) -> CallSample:
    """A sample of 100 elements around 0 with standard deviation 1."""
    known: dict[str, Any] = {"numel": 100, "n_nan": 0, "n_pos_inf": 0, "n_neg_inf": 0, "n_zero": 0}
    known |= {"min": -3.0, "max": 3.0, "mean": 0.0, "std": 1.0} | numbers
    return CallSample(call=call, replay=replay, **known)


def empty(call: int = 0) -> CallSample:
    """A sample without finite elements."""
    return sample(call, n_nan=100, min=math.nan, max=math.nan, mean=math.nan, std=math.nan)


def series(samples: Iterable[CallSample], dtype: str = "float32", modules: tuple[str, ...] = ("encoder.0",)) -> Series:
    """A series of a kernel's output."""
    return Series(3, 0, "cpp_fused_relu_1", "buf4", modules, dtype, tuple(samples))


def of_replays(samples: Iterable[CallSample]) -> Series:
    """The same in replays of the CUDA graph that captured call 1."""
    return replace(series(samples), captured_call=1)
