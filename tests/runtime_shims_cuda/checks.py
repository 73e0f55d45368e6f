"""Comparisons of statistics."""

from __future__ import annotations

import math

import pytest
import torch

from tests.runtime_shims_cuda import reference
from tests.runtime_shims_cuda.device_library import Result

EXACT = ("integer", "numel", "n_nan", "n_pos_inf", "n_neg_inf", "n_zero", "min_index", "max_index", "hash")


def check(result: Result, tensor: torch.Tensor) -> None:
    expected = reference.of(tensor)
    assert result.numel == tensor.numel()
    counts = (result.n_nan, result.n_pos_inf, result.n_neg_inf, result.n_zero)
    assert counts == (expected.n_nan, expected.n_pos_inf, expected.n_neg_inf, expected.n_zero)
    for found, first in zip(
        (result.nan_index, result.pos_inf_index, result.neg_inf_index), expected.specials, strict=True
    ):
        assert first is None or found == first
    assert result.hash == expected.hash
    assert result.shown() == (expected.data if tensor.numel() <= 64 else b"")
    if expected.min is None:
        assert math.isnan(result.mean)
        assert math.isnan(result.std)
        return
    low, high = result.number(result.min_bits), result.number(result.max_bits)
    if tensor.is_complex():
        assert low == pytest.approx(expected.min, rel=1e-14, abs=0)
        assert high == pytest.approx(expected.max, rel=1e-14, abs=0)
    else:
        assert (low, high) == (expected.min, expected.max)
    assert (result.min_index, result.max_index) == (expected.min_index, expected.max_index)
    assert result.mean == pytest.approx(expected.mean, rel=1e-12, abs=expected.std * 1e-12)
    assert result.std == pytest.approx(expected.std, rel=1e-12, abs=abs(expected.mean) * 1e-14)


def check_twins(ours: Result, theirs: Result, dtype: torch.dtype) -> None:
    """Of the device half and of the host half. Only magnitudes of complex128 may be rounded differently."""
    fields = EXACT if dtype is torch.complex128 else (*EXACT, "min_bits", "max_bits")
    assert {field: getattr(ours, field) for field in fields} == {field: getattr(theirs, field) for field in fields}
    assert ours.mean == pytest.approx(theirs.mean, rel=1e-12, abs=theirs.std * 1e-12, nan_ok=True)
    assert ours.std == pytest.approx(theirs.std, rel=1e-11, abs=abs(theirs.mean) * 1e-14, nan_ok=True)
