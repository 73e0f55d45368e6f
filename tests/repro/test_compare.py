from __future__ import annotations

import math

import pytest
import torch

from aoti_debug.repro.templates.compare import OutputComparison, compare, difference, index_of, program_text

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


def test_steps_of_several_complex_numbers() -> None:
    recorded = torch.tensor([1 + 1j, 2 + 1j])
    assert "max ULP 2 at (1,)" in difference(torch.tensor([1 + 1j, 2 + 1.0000002j]), recorded)


def test_the_first_of_several_largest_differences_is_located() -> None:
    """Elements that are equal, 0 among them, count for none of the measures."""
    recorded = torch.tensor([0.0, 1.0, 1.0])
    got = torch.tensor([0.0, 1.5, 1.5])
    assert difference(got, recorded) == (
        "differs in 2 of 3 elements: max abs 0.5 at (1,) (1.5 here, 1.0 recorded); max rel 0.5 at (1,) (1.5 here, 1.0 "
        "recorded); max ULP 4194304 at (1,) (1.5 here, 1.0 recorded); passes with rtol=0.5 or atol=0.5"
    )
    step = torch.nextafter(recorded, torch.tensor([0.0, 2.0, 2.0]))
    assert "max ULP 1 at (1,)" in difference(step, recorded)


def test_several_numbers_that_are_not_finite() -> None:
    text = difference(torch.tensor([0.0, NAN, math.inf]), torch.tensor([0.0, 1.0, -math.inf]))
    assert text == "differs in 2 of 3 elements: 2 with NaN or Inf, the first at (1,) (nan here, 1.0 recorded)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "rtol=0.5 or atol=0.5"),
        (1.03125, "rtol=1.1 or atol=1.1"),  # not 1
        (0.9921875, "rtol=1.1 or atol=1.1"),
        (1.25, "rtol=1.3 or atol=1.3"),
    ],
)
def test_tolerances_are_rounded_up(value: float, text: str) -> None:
    assert difference(torch.tensor([1 + value]), torch.tensor([1.0])).endswith(f"passes with {text}")


def test_no_relative_tolerance_passes_beside_zero() -> None:
    assert difference(torch.tensor([0.5]), torch.tensor([0.0])).endswith("; passes with atol=0.5")


@pytest.mark.parametrize(("steps", "figure"), [(9_999_999, "9999999"), (10_000_000, "1e+07")])
def test_large_figures_are_shortened(steps: int, figure: str) -> None:
    got = torch.tensor([steps], dtype=torch.int32).view(torch.float32)
    assert f"max ULP {figure} at (0,)" in difference(got, torch.tensor([0.0]))
    assert f"max abs {steps:.3g} at (0,)" in difference(torch.tensor([steps]), torch.tensor([0]))


def test_an_index_of_each_position() -> None:
    indices = [index_of(position, (2, 3, 2)) for position in range(12)]
    assert indices == [(i, j, k) for i in range(2) for j in range(3) for k in range(2)]


@pytest.mark.parametrize(
    ("got", "recorded", "tolerance", "passes"),
    [
        ([1.5], [1.0], 0.25, True),  # 0.25 * (1 + |1.0|)
        ([1.5 + 1e-6], [1.0], 0.25, False),
        ([-4.0], [-3.0], 0.25, True),
        ([0.0, 1.5], [0.0, 0.0], 0.25, False),
        ([1.0, NAN], [1.25, NAN], 0.25, True),
        ([1.0], [NAN], 0.25, False),
        ([NAN], [1.0], 0.25, False),
        ([math.inf, 1.0], [math.inf, 1.25], 0.25, True),
        ([math.inf], [-math.inf], 0.25, False),
        ([1.0], [math.inf], 0.25, False),
        ([math.inf], [1.0], 0.25, False),
        ([3.4028234663852886e38], [math.inf], 0.25, False),  # one step
        ([complex(math.inf, 0), 1.0], [complex(math.inf, 0), 1.25], 0.25, True),
        ([1j, 1.0], [1.25j, 1.0], 0.25, True),
        ([1j, 1.0], [3j, 1.0], 0.25, False),
        ([3], [2], 1.0, False),  # integers
        ([1.0], [[1.0]], 1.0, False),
        ([1.0], [1], 1.0, False),
        ([1.0], [1.25], 0.0, False),
    ],
)
def test_what_a_tolerance_allows(got: list[object], recorded: list[object], tolerance: float, passes: bool) -> None:
    one, other = torch.tensor(got), torch.tensor(recorded)
    text = difference(one, other)
    result = compare(one, other, tolerance)
    assert (result.passes, result.text) == (passes, f"within {tolerance:g}: {text}" if passes else text)


def test_a_tolerance_allows_one_step_of_the_dtype() -> None:
    recorded = torch.tensor([1e30, 1e-30])
    above = torch.nextafter(recorded, torch.tensor(math.inf))
    assert compare(above, recorded, 1e-12).passes
    assert not compare(torch.nextafter(above, torch.tensor(math.inf)), recorded, 1e-12).passes
    assert not compare(above, recorded).passes
    assert compare(recorded, recorded) == OutputComparison(True, "equal bit for bit")


def test_what_the_program_gives_is_told_beside_the_output() -> None:
    expected = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    got = torch.tensor([[1.0, 2.5], [3.0, 4.25]])
    assert program_text(expected, got) == "farthest from the program: [0, 1] is 2.5, the program gives 2.0"
    got[1, 0] = math.nan
    assert program_text(expected, got) == "farthest from the program: [1, 0] is nan, the program gives 3.0"
    assert program_text(None, got) == program_text(expected.flatten(), got) == ""
    assert program_text(torch.zeros(0, dtype=torch.float64), torch.zeros(0)) == ""
