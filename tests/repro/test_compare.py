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
        "max rel 0.5 at (1, 0) (0.25 here, 0.5 recorded); "
        "max ULP 8388608 at (1, 0) (0.25 here, 0.5 recorded); passes with rtol=0.5 or atol=2"
    )


def test_nan_against_a_number_does_not_hide_a_difference() -> None:
    text = difference(torch.tensor([NAN, 3.0]), torch.tensor([1.0, 2.0]))
    assert text == (
        "differs in 2 of 2 elements: max abs 1 at (1,) (3.0 here, 2.0 recorded); "
        "max rel 0.5 at (1,) (3.0 here, 2.0 recorded); "
        "max ULP 4194304 at (1,) (3.0 here, 2.0 recorded); "
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


def test_steps_and_tolerances_that_would_pass() -> None:
    recorded = torch.tensor([1.0, 2.0, 4.0])
    got = torch.nextafter(recorded, torch.tensor(math.inf))
    text = difference(got, recorded)
    assert "max ULP 1 at (0,)" in text
    assert text.endswith("passes with rtol=1.2e-07 or atol=4.8e-07")
    assert torch.allclose(got, recorded, rtol=1.2e-7, atol=0)
    assert torch.allclose(got, recorded, rtol=0, atol=4.8e-7)


@pytest.mark.parametrize(
    ("one", "other", "steps"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]) - 1e-45, "1"),
        (torch.tensor([1.0], dtype=torch.float16), torch.tensor([1.001], dtype=torch.float16), "1"),
        (torch.tensor([1.5]).to(torch.float8_e5m2), torch.tensor([2.0]).to(torch.float8_e5m2), "2"),
        (torch.tensor([1.0], dtype=torch.float64), torch.tensor([-1.0], dtype=torch.float64), "9.21e+18"),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1.0000002j]), "2"),
    ],
)
def test_steps_between_numbers(one: torch.Tensor, other: torch.Tensor, steps: str) -> None:
    assert f"max ULP {steps} at (0,)" in difference(one, other)
