"""The elements of a tensor that histograms are made of."""

from __future__ import annotations

import warnings

import numpy as np

from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor
from aoti_debug.views.report.tensor_samples import sample_of


def test_signalling_nan_gives_no_warning() -> None:
    """Memory that was never written holds any bits."""
    bits = np.array([0x7FA00000, 0x3F800000], np.uint32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample = sample_of(StoredTensor(bits.view(np.uint8), "float32", 2))
    assert sample is not None
    assert np.isnan(sample.values[0])
    assert sample.values[1] == 1
