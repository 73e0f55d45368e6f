"""Reads the values of tensors for histograms, within a budget of bytes."""

from __future__ import annotations

from typing import Any

from aoti_debug.base import dtypes
from aoti_debug.base.abi import Phase
from aoti_debug.base.machine.files import json_data
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor, open_tensor
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument
from aoti_debug.views.report.histograms import Sample, histogram

BUDGET = 256 << 20  # bytes of tensor files that a report reads
ELEMENTS = 1 << 18  # elements of a tensor, evenly spaced, that a histogram counts


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
        if (saved is None and recorded is None) or (phase is Phase.BEFORE and argument.role is Role.OUT):
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
            return sample_of(open_tensor(run.tensor_path(saved)))
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
