"""Inputs of a region that are moved by rounding errors."""

from __future__ import annotations

import pytest
import torch

from aoti_debug.compare.evaluate.function_bounds import FUNCTION_BOUNDS
from aoti_debug.compare.worker.perturbed import approximated, perturbed
from aoti_debug.package.reference.program import Node, NodeKind, ValueKey


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, 2.0**-52), (torch.float32, 2.0**-23)])
def test_every_number_is_moved(dtype: torch.dtype, unit: float) -> None:
    values = {ValueKey("x"): torch.ones(100, dtype=dtype), ValueKey("n"): torch.arange(3)}
    moved = perturbed(values, torch.Generator().manual_seed(0))
    assert set((moved[ValueKey("x")] - 1).tolist()) == {unit, -unit}
    assert moved[ValueKey("n")].tolist() == [0, 1, 2]
    far = perturbed(values, torch.Generator().manual_seed(0), units=8)
    assert set((far[ValueKey("x")] - 1).tolist()) == {8 * unit, -8 * unit}


def test_functions_that_kernels_approximate_are_moved_by_their_bounds_however_small_they_are() -> None:
    exact = torch.full((4,), 1e-6, dtype=torch.float64).erf()
    adjust = approximated(torch.Generator().manual_seed(0))
    moved = adjust(Node("erf", NodeKind.CALL, "aten.erf.default"), [], exact) - exact
    assert torch.allclose(moved.abs(), FUNCTION_BOUNDS["erf"].cpu * 2.0**-23 * exact, rtol=1e-6)
    assert adjust(Node("mul", NodeKind.CALL, "aten.mul.Tensor"), [], exact) is exact
