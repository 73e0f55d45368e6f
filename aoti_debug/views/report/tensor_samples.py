"""Reads the values of tensors for histograms, within a budget of bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

from aoti_debug.base import dtypes
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor, open_tensor
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir

MAX_BINS, MIN_BINS = 48, 8
_SPREAD = 50  # ratio of the magnitudes that the bins of the inner 98 % cover
_NARROW = 0.02  # if the inner 98 % lie in a smaller part of the range, bins grow with the magnitude
BUDGET = 256 << 20  # bytes of tensor files that a report reads
ELEMENTS = 1 << 18  # elements of a tensor, evenly spaced, that a histogram counts


@dataclass(frozen=True)
class Counts:
    """The elements of a tensor at one phase, counted.

    Attributes:
        bins: elements in each bin; finite elements only.
        sampled: elements that were counted, non-finite ones included.
        numel: elements of the tensor.
    """

    bins: tuple[int, ...]
    nan: int
    pos_inf: int
    neg_inf: int
    sampled: int
    numel: int


@dataclass(frozen=True)
class Histogram:
    """Counts of one tensor before and after a launch, over the same bins.

    Attributes:
        edges: of the bins, ascending, one more than there are bins; empty where no element is finite.
        even: True if all bins have one width; otherwise they grow with the magnitude (asinh).
        before, after: None where that phase was not saved.
    """

    edges: tuple[float, ...]
    even: bool
    before: Counts | None
    after: Counts | None


@dataclass(frozen=True)
class Sample:
    """Elements of a tensor.

    Attributes:
        values: a numpy array of float64, flat.
        numel: elements of the whole tensor.
    """

    values: Any
    numel: int


def histogram(before: Sample | None, after: Sample | None) -> Histogram:
    """The elements of both phases in bins between the smallest and the largest finite one."""
    import numpy as np

    finite_before, finite_after = _finite(before), _finite(after)
    joined = np.concatenate((finite_before, finite_after))
    if joined.size == 0:
        counts = _count(before, finite_before, None), _count(after, finite_after, None)
        return Histogram((), even=True, before=counts[0], after=counts[1])
    low, high = float(joined.min()), float(joined.max())
    if low == high:
        scale, pad = None, abs(low) * 1e-3 or 0.5
        low, high = low - pad, high + pad
    else:
        scale = _scale(joined, high / 2 - low / 2)
    if scale is None:
        part = _parts(min(max(round(2 * joined.size ** (1 / 3)), MIN_BINS), MAX_BINS))
        edges = low * (1 - part) + high * part
    else:
        edges = np.sinh(np.linspace(np.arcsinh(low / scale), np.arcsinh(high / scale), MAX_BINS + 1)) * scale
        edges[0], edges[-1] = low, high
    counts = _count(before, finite_before, edges), _count(after, finite_after, edges)
    return Histogram(tuple(edges.tolist()), scale is None, *counts)


def _finite(sample: Sample | None) -> Any:
    import numpy as np

    return np.zeros(0) if sample is None else sample.values[np.isfinite(sample.values)]


@cache
def _parts(count: int) -> Any:
    """The edges of so many even bins between 0 and 1."""
    import numpy as np

    return np.linspace(0, 1, count + 1)


def _scale(values: Any, half_range: float) -> float | None:
    """The magnitude below which bins are even, if most values lie in a small part of the range; else None."""
    low, high = _quantile(values, 0.01), _quantile(values, 0.99)
    inner = max(high / 2 - low / 2, 0.0)
    if inner >= _NARROW * half_range:
        return None
    return max(max(inner, abs(low), abs(high)) / _SPREAD, half_range * 1e-12)


def _quantile(values: Any, part: float) -> float:
    """numpy.quantile of finite values, interpolated linearly; numpy's own imports numpy.ma."""
    import numpy as np

    position = (int(values.size) - 1) * part
    index = int(position)
    following = min(index + 1, int(values.size) - 1)
    partitioned = np.partition(values, (index, following))
    low, high = float(partitioned[index]), float(partitioned[following])
    weight = position - index
    return low + (high - low) * weight if weight < 0.5 else high - (high - low) * (1 - weight)


def _count(sample: Sample | None, finite: Any, edges: Any) -> Counts | None:
    """The elements of a sample, counted; `edges` are None where no element of any sample is finite."""
    import numpy as np

    if sample is None:
        return None
    values = sample.values
    bins = () if edges is None else _bins(finite, edges)
    if finite.size == values.size:
        return Counts(bins, 0, 0, 0, int(values.size), sample.numel)
    return Counts(
        bins,
        int(np.isnan(values).sum()),
        int(np.isposinf(values).sum()),
        int(np.isneginf(values).sum()),
        int(values.size),
        sample.numel,
    )


def _bins(values: Any, edges: Any) -> tuple[int, ...]:
    """The values in each bin, as numpy.histogram counts them: the last one includes its end."""
    ordered = values.copy()
    ordered.sort()
    below = ordered.searchsorted(edges)
    below[-1] = ordered.searchsorted(edges[-1], "right")
    return tuple((below[1:] - below[:-1]).tolist())


class Sampler:
    """Makes histograms; equal tensors share one.

    Attributes:
        histograms: as plain data.
        unread: the number of tensors that were not read because the budget was spent.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._indices: dict[tuple[Any, ...], int] = {}
        self._samples: dict[tuple[Any, ...], Sample | None] = {}
        self.histograms: list[dict[str, Any]] = []
        self.unread = 0

    def histogram_index(self, run: RunDir, argument: Argument) -> int | None:
        """The index of the argument's histogram in `histograms`; None where no phase has values.

        Raises:
            RunDirError: a saved tensor is missing or damaged.
        """
        key = self._key(argument, Phase.BEFORE), self._key(argument, Phase.AFTER)
        if not any(key):
            return None
        if key not in self._indices:
            before, after = (self._sample(run, argument, phase, of) for phase, of in zip(Phase, key, strict=True))
            if before is None and after is None:
                return None
            self._indices[key] = len(self.histograms)
            self.histograms.append(json_data.to_data(histogram(before, after)))
        return self._indices[key]

    def _key(self, argument: Argument, phase: Phase) -> tuple[Any, ...]:
        """Identifies the tensor's values; () where there are none."""
        saved, recorded = argument.files.get(phase), argument.stats.get(phase)
        if (saved is None and recorded is None) or (phase is Phase.BEFORE and not argument.has_data_before):
            return ()
        layout = argument.layout
        if layout is None:
            return ()
        if saved is not None and saved.path:
            return (*saved.hash, layout.dtype, layout.numel)
        if recorded is not None and recorded.values and not recorded.uninitialised:
            return (recorded.values, layout.dtype)
        return ()

    def _sample(self, run: RunDir, argument: Argument, phase: Phase, key: tuple[Any, ...]) -> Sample | None:
        if key and key not in self._samples:
            self._samples[key] = self._read(run, argument, phase)
        return self._samples.get(key)

    def _read(self, run: RunDir, argument: Argument, phase: Phase) -> Sample | None:
        saved, layout = argument.files.get(phase), argument.layout
        if saved is not None and saved.path:
            if saved.bytes > self._budget:
                self.unread += 1
                return None
            self._budget -= saved.bytes
            return None if run.missing_file(saved) else sample_of(open_tensor(run.tensor_path(saved)))
        import numpy as np

        recorded = argument.stats[phase]
        assert layout is not None
        data = recorded.values
        size = dtypes.item_bytes(layout.dtype) or 1
        return sample_of(StoredTensor(np.frombuffer(data, np.uint8), layout.dtype, len(data) // size))


def sample_of(tensor: StoredTensor) -> Sample | None:
    """At most ELEMENTS elements, evenly spaced, the magnitude of complex ones; None for a dtype without values."""
    import numpy as np

    step = max(-(-tensor.numel // ELEMENTS), 1)
    try:
        values = tensor.numbers(step=step)
    except TypeError:
        return None
    with np.errstate(invalid="ignore"):  # signalling NaN, which memory that was never written may hold
        magnitudes = np.abs(values.astype(np.complex128)) if values.dtype.kind == "c" else values.astype(np.float64)
    return Sample(magnitudes, tensor.numel)
