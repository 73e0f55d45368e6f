"""Elements of matrix products, and what they were computed from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.runs.diagnosis.special_values import Special
from aoti_debug.runs.kernel_source.placement import LaunchTensors
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.triage.nonfinite import matrix_products
from tests.triage.recorder import Recorder

NAN, INF = float("nan"), float("inf")


def launch(base: Path, op: str, params: tuple[str, ...], dtype: torch.dtype, numbers: dict[str, float]) -> Launch:
    """A launch of an operator whose arguments have the names of its parameters."""
    one = torch.ones(1)
    recorder = Recorder(base)
    names = {name: name for name in (*params, "out")}
    recorder.launch("k", dict.fromkeys(params, one), {"out": one.to(dtype)}, params=names, numbers=numbers, op=op)
    (only,) = recorder.run().launches
    return only


def cause(
    base: Path,
    op: str,
    before: dict[str, list[object]],
    shape: tuple[int, ...],
    element: int,
    special: Special = Special.NAN,
    dtype: torch.dtype = torch.float16,
    **numbers: float,
) -> str:
    """The reason why an element of a result of that shape is not finite."""
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in before.items()}
    called = launch(base, op, tuple(before), dtype, numbers)
    result = called.argument("out")
    assert result is not None
    return matrix_products.cause(called, result, LaunchTensors(tensors, {"out": torch.zeros(shape)}), element, special)


A, B = [[1, 1, 1], [1, INF, 2]], [[1, 1], [1, 0], [1, 3]]


@pytest.mark.parametrize(
    ("op", "before", "shape", "element", "text"),
    [
        ("aten.mm.out", {"self": A, "mat2": B}, (2, 2), 3, "term 1 of the sum of products is +Inf * 0"),
        ("aten.mm.out", {"self": A, "mat2": B}, (2, 2), 2, ""),
        ("aten.mm.out", {"self": A, "mat2": B}, (2, 2), 1, ""),
        ("aten.mv.out", {"self": A, "vec": [3, 0, 0]}, (2,), 1, "term 1 of the sum of products is +Inf * 0"),
        (
            "aten.bmm.out",
            {"self": [[[1, 1, 1]] * 2, A], "mat2": [[[1, 1]] * 3, B]},
            (2, 2, 2),
            7,
            "term 1 of the sum of products is +Inf * 0",
        ),
        ("aten.bmm.out", {"self": [[[1, 1, 1]] * 2, A], "mat2": [[[1, 1]] * 3, B]}, (2, 2, 2), 3, ""),
        (
            "aten.mm.out",
            {"self": [[-INF, 1]], "mat2": [[0], [1]]},
            (1, 1),
            0,
            "term 0 of the sum of products is -Inf * 0",
        ),
        ("aten.mm.out", {"self": [[NAN, 1]], "mat2": [[0], [1]]}, (1, 1), 0, ""),
        ("aten.mm.out", {"self": [[0, 1]], "mat2": [[NAN], [1]]}, (1, 1), 0, ""),
        (
            "aten.mm.out",
            {"self": [[INF, -INF]], "mat2": [[1], [1]]},
            (1, 1),
            0,
            "the sum of products adds +Inf and -Inf",
        ),
        ("aten.mm.out", {"self": [[INF, INF]], "mat2": [[1], [1]]}, (1, 1), 0, ""),
        ("aten.mm.out", {"self": [[-INF, -INF]], "mat2": [[1], [1]]}, (1, 1), 0, ""),
        ("aten.mm.out", {"self": [[INF]]}, (1, 1), 0, ""),
        ("aten.mm.out", {"self": [[INF, 1]], "mat2": [[0]]}, (1, 1), 0, ""),
        ("aten.mul.out", {"self": [[INF]], "mat2": [[0]]}, (1, 1), 0, ""),
        ("", {"self": [[INF]], "mat2": [[0]]}, (1, 1), 0, ""),
    ],
)
def test_products_that_are_nan(
    tmp_path: Path, op: str, before: dict[str, list[object]], shape: tuple[int, ...], element: int, text: str
) -> None:
    assert cause(tmp_path, op, before, shape, element) == text


@pytest.mark.parametrize(
    ("bias", "numbers", "special", "total"),
    [
        (20000, {}, Special.PLUS_INF, "60000"),
        (30000, {}, Special.PLUS_INF, "70000"),
        (0, {"alpha": 2.0}, Special.PLUS_INF, "80000"),
        (0, {"alpha": -2.0}, Special.MINUS_INF, "-80000"),
        (10000, {"beta": 2.0}, Special.PLUS_INF, "60000"),
        (10000, {"beta": 3.0}, Special.PLUS_INF, "70000"),
        (30000, {}, Special.NAN, "70000"),
        (INF, {}, Special.PLUS_INF, "inf"),
    ],
)
def test_sums_beyond_the_largest_number(
    tmp_path: Path, bias: float, numbers: dict[str, float], special: Special, total: str
) -> None:
    """Of one product, 200 * 200."""
    before = {"self": [0, bias], "mat1": [[200]], "mat2": [[0, 200]]}
    text = cause(tmp_path, "aten.addmm.out", before, (1, 2), 1, special, **numbers)  # type: ignore[arg-type]
    known = total != "60000" and special is not Special.NAN and total != "inf"
    assert text == (f"the sum of 1 product is {total} in float64, beyond the largest float16 (65504)" if known else "")


@pytest.mark.parametrize(
    ("op", "params", "shape", "element", "expected"),
    [
        ("aten.mm.out", ("self", "mat2"), (2, 2), 2, ["row 1 of self", "column 0 of mat2"]),
        ("aten.addmm.out", ("self", "mat1", "mat2"), (2, 2), 1, [None, "row 0 of mat1", "column 1 of mat2"]),
        ("aten.bmm.out", ("self", "mat2"), (2, 2, 2), 6, ["row 1 of self", "column 0 of mat2"]),
        ("aten.mv.out", ("self", "vec"), (2,), 1, ["row 1 of self", "vec"]),
        ("aten.mul.out", ("self", "mat2"), (2, 2), 2, [None, None]),
    ],
)
def test_factors_of_a_product(
    tmp_path: Path,
    op: str,
    params: tuple[str, ...],
    shape: tuple[int, ...],
    element: int,
    expected: list[str | None],
) -> None:
    called = launch(tmp_path, op, params, torch.float32, {})
    tensors = [torch.arange(8.0).reshape(2, 2, 2)[(0,) * (3 - len(shape))]] * len(params)
    tensors = [torch.ones(2, 2) if len(shape) == 1 else each for each in tensors]
    if "vec" in params:
        tensors[1] = torch.ones(2)
    found = [
        matrix_products.factor(called, called.args[slot], called.args[slot].name, tensor, shape, element)
        for slot, tensor in enumerate(tensors)
    ]
    assert [None if each is None else each[0] for each in found] == expected
    if op == "aten.bmm.out":
        assert [each[1].tolist() for each in found if each is not None] == [[6, 7], [4, 6]]
