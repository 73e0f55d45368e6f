from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.triage.nonfinite import explain_element
from aoti_debug.triage.nonfinite.explain_element import OperandValues
from tests.triage.recorder import Recorder

NAN, INF = float("nan"), float("inf")
X = torch.arange(6.0).reshape(2, 3)


def operands(
    base: Path,
    tensors: dict[str, torch.Tensor],
    shape: tuple[int, ...],
    element: int,
    read: dict[str, torch.Tensor] | None = None,
) -> OperandValues:
    """The operand values of an element of a result of that shape."""
    recorder = Recorder(base)
    recorder.launch("k", tensors, {"buf0": torch.zeros(shape)}, params={name: name for name in (*tensors, "buf0")})
    run = recorder.run()
    (launch,) = run.launches
    result = launch.argument("buf0")
    assert result is not None
    return explain_element.operand_values(run, launch, result, tensors, shape, element, read or {})


@pytest.mark.parametrize(
    ("tensor", "shape", "element", "text"),
    [
        (X, (2, 3), 4, "x = 4"),
        (X[0], (2, 3), 4, "x = 1"),
        (X[:1], (2, 3), 4, "x = 1"),
        (X[:, :1], (2, 3), 4, "x = 3"),
        (torch.tensor(7.0), (2, 3), 4, "x = 7"),
        (X, (2,), 1, "a row of x (3 elements, finite from 3 to 5)"),
        (X, (2, 1), 1, "a row of x (3 elements, finite from 3 to 5)"),
        (X, (3,), 2, "a row of x (2 elements, finite from 2 to 5)"),
        (X, (1, 3), 2, "a row of x (2 elements, finite from 2 to 5)"),
        (X[:, :2], (2,), 1, "a row of x (2 elements, finite from 3 to 4)"),  # of the last dimension, if both fit
        (X, (), 0, "a row of x (6 elements, 1 zero, finite from 0 to 5)"),
        (X, (1,), 0, "a row of x (6 elements, 1 zero, finite from 0 to 5)"),
        (X, (5,), 1, ""),
        (X, (2, 4), 1, ""),
        (X[:0], (2,), 1, ""),
        (X.reshape(2, 1, 3), (2, 3), 4, "a row of x (1 element, finite from 4 to 4)"),
        (torch.arange(12.0).reshape(2, 2, 3), (2, 3), 4, "a row of x (2 elements, finite from 7 to 10)"),
    ],
)
def test_the_values_of_an_operand(
    tmp_path: Path, tensor: torch.Tensor, shape: tuple[int, ...], element: int, text: str
) -> None:
    assert operands(tmp_path, {"x": tensor}, shape, element) == OperandValues((), (text,) if text else ())


def test_values_that_are_known_to_have_been_read(tmp_path: Path) -> None:
    read = {"x": torch.tensor(9.0), "y": torch.tensor([1.0, INF])}
    found = operands(tmp_path, {"x": X, "y": X, "z": X}, (2, 3), 4, read)
    assert found.read == ("x = 9", "a row of y (2 elements, 1 +Inf, finite from 1 to 1)")
    assert found.guessed == ("z = 4",)


def test_at_most_six_operands(tmp_path: Path) -> None:
    found = operands(tmp_path, {f"x{n}": X for n in range(8)}, (2, 3), 1)
    assert found.guessed == ("x0 = 1", "x1 = 1", "x2 = 1", "x3 = 1", "x4 = 1", "x5 = 1")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "(0 elements)"),
        ([-INF], "(1 element, all -Inf)"),
        ([-INF, -INF], "(2 elements, all -Inf)"),
        ([INF, INF], "(2 elements, 2 +Inf)"),
        ([-INF, NAN, NAN, INF], "(4 elements, 2 NaN, 1 +Inf, 1 -Inf)"),
        ([0.0, -0.0, -2.5, 7.25], "(4 elements, 2 zeros, finite from -2.5 to 7.25)"),
        ([0.0, 1.0], "(2 elements, 1 zero, finite from 0 to 1)"),
        ([True, False, True], "(3 elements, 2 true)"),
        ([True], "(1 element, 1 true)"),
        ([3, 1], "(2 elements, finite from 1 to 3)"),
    ],
)
def test_a_row_in_words(values: list[float], text: str) -> None:
    assert explain_element.row(torch.tensor(values)) == text


@pytest.mark.parametrize(("value", "text"), [(0.1, "0.1"), (NAN, "NaN"), (INF, "+Inf"), (-INF, "-Inf"), (0.0, "0")])
def test_a_value_in_words(value: float, text: str) -> None:
    assert explain_element.spell(value) == text
