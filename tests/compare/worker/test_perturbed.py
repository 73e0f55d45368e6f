"""Inputs and results that are moved by rounding errors."""

from __future__ import annotations

import pytest
import torch

from aoti_debug.compare.worker.perturbed import approximated, perturbed, rounded_otherwise
from aoti_debug.reference.program import Node, NodeKind, ValueKey


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float64, 2.0**-52), (torch.float32, 2.0**-23)])
def test_every_number_is_moved(dtype: torch.dtype, unit: float) -> None:
    values = {ValueKey("x"): torch.ones(100, dtype=dtype), ValueKey("n"): torch.arange(3)}
    moved = perturbed(values, torch.Generator().manual_seed(0))
    assert set((moved[ValueKey("x")] - 1).tolist()) == {unit, -unit}
    assert moved[ValueKey("n")].tolist() == [0, 1, 2]


def test_functions_that_kernels_approximate_are_moved_by_an_absolute_error() -> None:
    exact = torch.full((4,), 1e-6, dtype=torch.float64).erf()
    adjust = approximated(torch.Generator().manual_seed(0))
    moved = adjust(Node("erf", NodeKind.CALL, "aten.erf.default"), [], exact) - exact
    assert torch.allclose(moved.abs(), torch.full((4,), 2.0**-23).double())
    assert adjust(Node("exp", NodeKind.CALL, "aten.exp.default"), [], exact) is exact


@pytest.mark.parametrize(("dtypes", "unit"), [(("float32", "int64"), 2.0**-23), (("float32", "bfloat16"), 2.0**-7)])
def test_what_every_operator_rounds_may_be_several_units(dtypes: tuple[str, ...], unit: float) -> None:
    adjust = rounded_otherwise(torch.Generator().manual_seed(0), dtypes)
    node, values = Node("exp", NodeKind.CALL, "aten.exp.default"), torch.ones(4, 50, dtype=torch.float64)
    moved = adjust(node, [], values) - 1
    assert 0 < float(moved.abs().max()) <= 8 * unit
    assert float(moved.abs().max()) > 4 * unit
    view = values.t()
    assert adjust(node, [values], view) is view
    assert adjust(node, [[values]], values[1:]).data_ptr() == values[1:].data_ptr()
    numbers = torch.arange(3)
    assert adjust(node, [], numbers) is numbers
