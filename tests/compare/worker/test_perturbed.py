"""Inputs that are moved by one unit of the kernel's arithmetic."""

from __future__ import annotations

import pytest
import torch

from aoti_debug.compare.worker.perturbed import perturbed
from aoti_debug.reference.program import ValueKey


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, 2.0**-52), (torch.float32, 2.0**-23)])
def test_every_number_is_moved(dtype: torch.dtype, unit: float) -> None:
    values = {ValueKey("x"): torch.ones(100, dtype=dtype), ValueKey("n"): torch.arange(3)}
    moved = perturbed(values, torch.Generator().manual_seed(0))
    assert set((moved[ValueKey("x")] - 1).tolist()) == {unit, -unit}
    assert moved[ValueKey("n")].tolist() == [0, 1, 2]
