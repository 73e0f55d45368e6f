"""Fingerprints of tensors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.measure.fingerprint import Fingerprints, fingerprint

X = torch.linspace(-3, 5, 24, dtype=torch.float64).reshape(4, 6)


def held(*tensors: Tensor) -> Fingerprints:
    found = Fingerprints()
    for tensor in tensors:
        found.add(tensor)
    return found


@pytest.mark.parametrize("same", [X, X.t(), X.reshape(-1), X * (1 + 1e-9), X.flip(0)])
def test_the_same_numbers_are_found_in_any_order(same: Tensor) -> None:
    assert held(X + 1, X, X * 2).has_like(same)


@pytest.mark.parametrize("other", [-X, X * 1.001, X + 0.001, X[:3], torch.cat([X, X])])
def test_other_numbers_are_not(other: Tensor) -> None:
    assert not held(X + 1, X, X * 2).has_like(other)


def test_elements_that_are_not_finite_are_counted() -> None:
    one = X.clone()
    one[0, 0] = math.nan
    two = one.clone()
    two[1, 1] = math.inf
    assert fingerprint(two).special == 2
    assert held(one).has_like(one)
    assert not held(one).has_like(two)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.complex64])
def test_tensors_of_other_dtypes(dtype: torch.dtype) -> None:
    tensor = (X > 0).to(dtype)
    assert held(tensor).has_like(tensor)
    assert not held(tensor).has_like(torch.zeros_like(tensor))


def test_a_conjugated_tensor() -> None:
    tensor = torch.complex(X, X + 1)
    assert held(tensor.conj()).has_like(tensor.conj().resolve_conj())


def test_a_tensor_without_elements() -> None:
    assert held(torch.ones(0)).has_like(torch.ones(0, 3))
    assert not held(X).has_like(torch.ones(0))
