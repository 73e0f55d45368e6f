from __future__ import annotations

import math

import pytest
import torch

from aoti_debug.repro.templates.compare import difference

NAN = math.nan


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, NAN, math.inf, -0.0]),
        torch.tensor(3),
        torch.empty(0, 4),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16).t(),
        torch.tensor([1.5]).to(torch.float8_e5m2),
    ],
    ids=lambda t: f"{t.dtype}",
)
def test_a_tensor_equals_its_copy(tensor: torch.Tensor) -> None:
    assert difference(tensor, tensor.clone()) == ""


def test_largest_differences_are_located() -> None:
    recorded = torch.tensor([[100.0, 1.0], [0.5, 2.0]])
    got = torch.tensor([[102.0, 1.0], [0.25, 2.0]])
    assert difference(got, recorded) == (
        "differs in 2 of 4 elements: max abs 2 at (0, 0) (102.0 here, 100.0 recorded); "
        "max rel 0.5 at (1, 0) (0.25 here, 0.5 recorded)"
    )


def test_nan_against_a_number_does_not_hide_a_difference() -> None:
    text = difference(torch.tensor([NAN, 3.0]), torch.tensor([1.0, 2.0]))
    assert text == (
        "differs in 2 of 2 elements: max abs 1 at (1,) (3.0 here, 2.0 recorded); "
        "max rel 0.5 at (1,) (3.0 here, 2.0 recorded); "
        "1 with NaN or Inf, the first at (0,) (nan here, 1.0 recorded)"
    )


def test_signs_of_zero_differ() -> None:
    text = difference(torch.tensor([1.0, -0.0]), torch.tensor([1.0, 0.0]))
    assert text == "differs in 1 of 2 elements: equal in double precision, the first at (1,) (-0.0 here, 0.0 recorded)"


def test_integers_beyond_double_precision() -> None:
    text = difference(torch.tensor([2**53 + 1]), torch.tensor([2**53]))
    assert text.endswith("the first at (0,) (9007199254740993 here, 9007199254740992 recorded)")


def test_a_difference_to_zero_is_infinite() -> None:
    assert "max rel inf at (0,)" in difference(torch.tensor([1.0]), torch.tensor([0.0]))


def test_another_dtype_or_shape() -> None:
    assert difference(torch.zeros(2), torch.zeros(2, dtype=torch.int32)) == "is float32 (2,), recorded int32 (2,)"
    assert difference(torch.zeros(2, 1), torch.zeros(2)) == "is float32 (2, 1), recorded float32 (2,)"
