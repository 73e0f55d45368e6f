"""Errors of outputs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.compare.measure.output_errors import (
    OutputError,
    ReturnedElement,
    coarsest_of,
    errors,
    is_low_precision,
    of_other_kind,
    of_program,
    with_double,
    with_faults,
)
from aoti_debug.runs.run.saved_outputs import write_tensor


def written(folder: Path, *tensors: torch.Tensor) -> dict[int, Path]:
    for index, tensor in enumerate(tensors):
        write_tensor(folder / f"{index}.safetensors", str(index), tensor)
    return {index: folder / f"{index}.safetensors" for index in range(len(tensors))}


def error(actual: torch.Tensor, expected: torch.Tensor, folder: Path) -> OutputError:
    (found,) = errors(written(folder / "a", actual), written(folder / "b", expected))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.float16])
def test_the_relative_error_of_an_output(tmp_path: Path, dtype: torch.dtype) -> None:
    expected = torch.full((4, 4), 2.0, dtype=dtype)
    actual = expected.clone().t()
    actual[0, 1] = 4.0
    found = error(actual, expected, tmp_path)
    assert (found.elements, found.different) == (16, 1)
    assert found.relative == pytest.approx(0.25)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_infinitely_wrong(tmp_path: Path, value: float) -> None:
    found = error(torch.tensor([1.0, value]), torch.ones(2), tmp_path)
    assert (found.relative, found.is_right) == (math.inf, False)


def test_squares_of_huge_numbers_do_not_overflow(tmp_path: Path) -> None:
    expected = torch.full((4,), 1e300, dtype=torch.float64)
    assert error(expected * 1.5, expected, tmp_path).relative == pytest.approx(0.5)


def test_signalling_nan_gives_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    signalling = torch.tensor([0x7FA00000, 0x3F800000], dtype=torch.int32).view(torch.float32)
    found = error(signalling, torch.tensor([math.nan, 2.0]), tmp_path)
    assert found.relative == pytest.approx(math.sqrt(0.125))
    assert not recwarn.list


def test_the_same_infinities_are_right(tmp_path: Path) -> None:
    tensor = torch.tensor([math.inf, math.nan, 1.0])
    assert error(tensor + 0, tensor, tmp_path).is_right
    assert error(tensor, tensor, tmp_path).nonfinite == 2


def test_integers_have_to_be_equal(tmp_path: Path) -> None:
    many = torch.full((1 << 16,), 1 << 20)
    other = many.clone()
    other[3] += 1
    assert not error(other, many, tmp_path).is_right


@pytest.mark.parametrize(("double", "eager", "is_right"), [(0.08, 0.01, True), (0.09, 0.01, False), (0.2, 0.0, False)])
def test_eagers_own_error_may_be_made_too(double: float, eager: float, is_right: bool) -> None:
    assert (
        OutputError(
            index=0, dtype="float32", elements=8, different=8, relative=0.2, double=double, eager_double=eager
        ).is_right
        is is_right
    )


def test_errors_against_float64(tmp_path: Path) -> None:
    exact = torch.full((4,), 2.0, dtype=torch.float64)
    eager, actual = exact.float() * 1.01, exact.float() * 1.05
    files = [written(tmp_path / name, tensor) for name, tensor in (("a", actual), ("e", eager), ("d", exact))]
    (found,) = with_double(errors(files[0], files[1]), *files)
    assert (found.double, found.eager_double) == pytest.approx((0.05, 0.01))
    assert found.is_right
    (unknown,) = with_double(errors(files[0], files[1]), files[0], files[1], {})
    assert unknown.double is None


def test_outputs_of_another_kind_are_not_compared(tmp_path: Path) -> None:
    assert errors(written(tmp_path / "a", torch.ones(2)), written(tmp_path / "b", torch.ones(3))) == ()


def test_another_dtype_shape_or_number_of_outputs_is_a_fault(tmp_path: Path) -> None:
    expected = torch.ones(2, 3)
    actual = written(tmp_path / "a", expected, expected.double(), expected.t(), expected[:, :1].half(), expected)
    right = written(tmp_path / "b", expected, expected, expected, expected)
    right[5] = right[0]
    found = of_other_kind(actual, right)
    assert [(error.index, error.fault) for error in found] == [
        (1, "is float64[2, 3], where eager returns float32[2, 3]: another dtype"),
        (2, "is float32[3, 2], where eager returns float32[2, 3]: another shape"),
        (3, "is float16[2, 1], where eager returns float32[2, 3]: another dtype and shape"),
        (4, "is float32[2, 3], where eager returns no tensor or number"),
        (5, "is not returned, where eager returns float32[2, 3]"),
    ]
    assert not any(error.is_right for error in found)


def test_faults_of_outputs_with_and_without_an_error(tmp_path: Path) -> None:
    actual = written(tmp_path / "a", torch.ones(2), torch.ones(3))
    (known,) = errors({0: actual[0]}, {0: actual[0]})
    first, second = with_faults((known,), {0: "is wrong", 1: "is wrong", 7: "is gone"}, actual)
    assert (first.index, second.index, second.elements) == (0, 1, 3)
    assert not first.is_right
    assert not second.is_right


def test_float8_rounds_most() -> None:
    assert coarsest_of(("float32", "float8_e4m3fn", "int64")) == "float8_e4m3fn"
    assert coarsest_of(("int64", "bool")) == ""
    assert [is_low_precision(name) for name in ("float8_e5m2", "bfloat16", "float32", "")] == [True, True, False, False]


def test_rounding_is_that_of_the_coarsest_dtype_of_the_program() -> None:
    wide, whole, overflowed = (
        OutputError(index=index, dtype=dtype, elements=8, different=3, relative=relative)
        for index, (dtype, relative) in enumerate((("float32", 0.02), ("int64", 0.5), ("float32", math.inf)))
    )
    found = (wide, whole, overflowed)
    assert [error.is_right for error in of_program(found, lambda _: ("float32", "int64"))] == [False, False, False]
    rounded = of_program(found, lambda _: ("float32", "bfloat16", "int64"))
    assert [error.is_right for error in rounded] == [True, True, True]


# Rounding that kernels leave out


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_places_that_are_not_finite_are_counted(tmp_path: Path, value: float) -> None:
    expected = torch.tensor([[1.0, value, 3.0], [value, 5.0, value]])
    actual = torch.tensor([[1.5, value, 3.0], [0.0, 5.0, value]])
    found = error(actual, expected, tmp_path)
    assert (found.misplaced, found.relative) == (1, math.inf)
    assert found.example == ReturnedElement((1, 0), "0.0", str(value))


def test_the_element_that_is_farthest_off_is_the_example(tmp_path: Path) -> None:
    found = error(torch.tensor([1.0, 2.5, 3.25]), torch.tensor([1.0, 2.0, 3.0]), tmp_path)
    assert (found.misplaced, found.example) == (0, ReturnedElement((1,), "2.5", "2.0"))


@pytest.mark.parametrize(
    ("actual", "expected", "is_near"),
    [
        (torch.tensor([4.0, 1e-3]), torch.tensor([4.0, 1e-3]), True),
        (torch.tensor([4.0 + 2**-20, 1e-3]), torch.tensor([4.0, 1e-3]), True),
        (torch.tensor([4.0 + 2**-18, 1e-3]), torch.tensor([4.0, 1e-3]), False),
        (torch.tensor([4.0, 1e-9]), torch.tensor([4.0, 0.0]), False),  # nothing says of what it is the last place
        (torch.tensor([4.0, math.inf]), torch.tensor([4.0, 1.0]), False),
        (torch.tensor([4, 5]), torch.tensor([4, 6]), False),
    ],
)
def test_what_differs_in_the_last_places_alone_is_nearly_equal(
    actual: torch.Tensor, expected: torch.Tensor, is_near: bool, tmp_path: Path
) -> None:
    assert error(actual, expected, tmp_path).is_nearly_equal is is_near


@pytest.mark.parametrize(
    ("dtype", "actual", "expected", "decides"),
    [
        ("bool", "False", "True", True),
        ("int64", "7", "3", True),
        ("int8", "7", "8", False),  # a step of quantisation
        ("bfloat16", "7.0", "3.0", False),
    ],
)
def test_another_decision_in_16_bits_is_no_rounding(dtype: str, actual: str, expected: str, decides: bool) -> None:
    example = ReturnedElement((1,), actual, expected)
    found = OutputError(
        index=0,
        dtype=dtype,
        elements=8,
        different=1,
        relative=0.01,
        computed="bfloat16",
        double=0.0,
        eager_double=0.01,
        example=example,
        arithmetic="bfloat16",
    )
    assert found.is_another_decision is decides
    assert found.has_lost_rounding is decides


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (
            OutputError(
                index=0,
                dtype="float32",
                elements=8,
                different=8,
                relative=3e-4,
                computed="float16",
                double=1e-7,
                eager_double=3e-4,
            ),
            True,
        ),
        (
            OutputError(
                index=0,
                dtype="float32",
                elements=8,
                different=8,
                relative=3e-4,
                computed="float16",
                double=2e-4,
                eager_double=3e-4,
            ),
            False,
        ),  # float64 is as far from both
        (
            OutputError(
                index=0,
                dtype="float32",
                elements=8,
                different=8,
                relative=3e-4,
                computed="float16",
                double=1e-7,
                eager_double=3e-4,
                arithmetic="float16",
            ),
            False,
        ),
        (
            OutputError(
                index=0,
                dtype="float16",
                elements=8,
                different=8,
                relative=0.5,
                computed="float16",
                double=1e-4,
                eager_double=0.5,
                arithmetic="float16",
            ),
            True,
        ),
        (
            OutputError(
                index=0,
                dtype="float32",
                elements=8,
                different=8,
                relative=2e-7,
                computed="float16",
                double=1e-9,
                eager_double=2e-7,
            ),
            False,
        ),  # in the last place
        (
            OutputError(
                index=0,
                dtype="int64",
                elements=8,
                different=1,
                relative=0.1,
                computed="bfloat16",
                double=0.0,
                eager_double=0.1,
            ),
            True,
        ),
        (
            OutputError(
                index=0,
                dtype="int64",
                elements=8,
                different=1,
                relative=0.1,
                computed="bfloat16",
                double=0.0,
                eager_double=0.1,
                arithmetic="bfloat16",
            ),
            False,
        ),  # it decides
        (
            OutputError(
                index=0,
                dtype="float32",
                elements=8,
                different=8,
                relative=3e-4,
                computed="float32",
                double=1e-7,
                eager_double=3e-4,
                arithmetic="float32",
            ),
            False,
        ),
        (
            OutputError(index=0, dtype="float32", elements=8, different=8, relative=3e-4, computed="float16"),
            False,
        ),  # float64 is not known
    ],
)
def test_rounding_is_lost_where_float64_is_nearer_to_the_run(error: OutputError, is_lost: bool) -> None:
    assert error.has_lost_rounding is is_lost


HALF = OutputError(
    index=0,
    dtype="float16",
    elements=8,
    different=8,
    relative=0.0053,
    computed="float16",
    arithmetic="float16",
    example=ReturnedElement((1,), "0.08765", "0.0905"),
)
NEAR = ReturnedElement((1,), "0.0906", "0.0905")


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, 0.02),
        ({"dtype": "float32", "computed": "bfloat16"}, 0.1),
        ({"example": NEAR}, None),
        ({"different": 0}, None),
        ({"relative": 0.021}, None),
        ({"computed": "float32", "dtype": "float32"}, None),
        ({"dtype": "int64"}, None),
        ({"misplaced": 1, "relative": math.inf}, None),
        ({"fault": "is another one"}, None),
    ],
)
def test_what_passes_by_the_rule_of_its_dtype_is_told(changes: dict[str, Any], limit: float | None) -> None:
    assert replace(HALF, **changes).tolerated == limit
