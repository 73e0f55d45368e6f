"""Measured differences and the verdicts on them: cases that are wrong, and cases that only look so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.measure.evaluated import Evaluated, Subject
from aoti_debug.compare.measure.measure import measure
from aoti_debug.compare.measure.ulp import ulp
from aoti_debug.compare.measure.verdicts import LaunchVerdict, verdict_on, verdict_on_output
from aoti_debug.compare.protocol.measurement import Measurement

SUBJECT = Subject("buf0", "add", "aten.add.Tensor")
NAN, INF = float("nan"), float("inf")
Function = Callable[..., Tensor]


def evaluated(function: Function, *inputs: Tensor, actual: Tensor | None = None, terms: int = 1) -> Evaluated:
    """A function as a kernel that is right would be evaluated; `actual` replaces what the launch wrote."""
    eager = function(*inputs)
    dtype = eager.dtype

    def wider(dtype: torch.dtype) -> tuple[Tensor, ...]:
        return tuple(t.to(dtype) if t.is_floating_point() else t for t in inputs)

    double = [t.to(torch.float64) if t.is_floating_point() else t for t in inputs]
    unit = 2.0**-23

    def moved(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        signs = (torch.randint(0, 2, t.shape, generator=generator) * 2 - 1 for t in double)
        return function(
            *(t * (1 + unit * sign) if t.is_floating_point() else t for t, sign in zip(double, signs, strict=True))
        )

    kernel = function(*wider(torch.float32)) if dtype in (torch.float16, torch.bfloat16) else eager
    result = kernel.to(dtype) if actual is None else actual
    return Evaluated(
        actual=result,
        eager=eager,
        kernel=kernel,
        double=function(*double),
        perturbed=tuple(map(moved, range(3))),
        terms=terms,
    )


def verdict(output: Evaluated) -> LaunchVerdict:
    return verdict_on_output(measure(SUBJECT, output))


def values(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * scale).to(dtype)


def cancelled(x: Tensor, y: Tensor) -> Tensor:
    return (x + y) - y


def other_order(x: Tensor) -> Tensor:
    """The sum of each row, one after the other, as a kernel without vectors computes it."""
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for column in x.unbind(1):
        total = total + column
    return total


X, Y = values(64, 33), values(64, 33, scale=1e5)

HARMLESS: dict[str, tuple[Evaluated, LaunchVerdict]] = {
    "equal": (evaluated(torch.add, X, Y), LaunchVerdict.OK),
    "one ULP": (
        evaluated(torch.add, X, X, actual=torch.nextafter(X + X, torch.tensor(INF))),
        LaunchVerdict.OK,
    ),
    "cancellation, in another order": (
        evaluated(cancelled, X, Y, actual=(X + 2 * Y) - 2 * Y),
        LaunchVerdict.ROUNDING,
    ),
    "a sum in another order": (evaluated(lambda x: x.sum(1), Y, actual=other_order(Y), terms=33), LaunchVerdict.OK),
    "a sum that cancels": (
        evaluated(
            lambda x: (torch.cat([x, -x], 1)).sum(1) + 1e-3 * x[:, 0],
            Y,
            actual=other_order(torch.cat([Y, -Y], 1)) + 1e-3 * Y[:, 0],
            terms=66,
        ),
        LaunchVerdict.OK,
    ),
    "nearer to float64 than eager": (
        evaluated(lambda x: x.exp().log().exp().log() * 3, X, actual=(X.double() * 3).float()),
        LaunchVerdict.OK,
    ),
    "next to zero": (
        evaluated(lambda x: x.sin(), torch.full((8,), 3.1415927), actual=torch.full((8,), 3.1415927).sin() + 1e-14),
        LaunchVerdict.OK,
    ),
    "signs of zero": (evaluated(lambda x: x * 0, X, actual=-(X * 0)), LaunchVerdict.OK),
    "sign of NaN": (
        evaluated(lambda x: x * NAN, X, actual=torch.full_like(X, NAN).neg()),
        LaunchVerdict.OK,
    ),
    "NaN that eager has as well": (
        evaluated(lambda x: x.sqrt(), X),
        LaunchVerdict.OK,
    ),
    "overflow that eager has as well": (
        evaluated(lambda x: x * 6e4, values(64, dtype=torch.float16)),
        LaunchVerdict.OK,
    ),
    "float32 within the kernel": (
        evaluated(lambda x: torch.softmax(x * 3 + 1, -1), values(64, 32, dtype=torch.bfloat16)),
        LaunchVerdict.OK,
    ),
    "eager's own rounding": (
        evaluated(
            lambda x: ((x + 3) * 7 - 20).tanh(),
            values(4096, dtype=torch.bfloat16),
            actual=((values(4096, dtype=torch.bfloat16) + 3) * 7 - 20).tanh(),
        ),
        LaunchVerdict.OK,
    ),
    "a decision at a rounding error": (
        evaluated(lambda x: (x * 3 / 3) >= x, X, actual=torch.ones_like(X, dtype=torch.bool)),
        LaunchVerdict.OK,
    ),
    "empty": (evaluated(torch.neg, torch.empty(0, 3)), LaunchVerdict.OK),
    "integers": (evaluated(torch.mul, torch.arange(9), torch.arange(9)), LaunchVerdict.OK),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_rounding_explains_is_not_wrong(case: str) -> None:
    output, least = HARMLESS[case]
    found = verdict(output)
    assert found is not LaunchVerdict.WRONG
    if least is not LaunchVerdict.OK:
        assert found is not LaunchVerdict.OK


def changed(tensor: Tensor, index: int, value: float) -> Tensor:
    copy = tensor.clone()
    copy.view(-1)[index] = value
    return copy


WRONG: dict[str, Evaluated] = {
    "swapped operands": evaluated(torch.sub, X, Y, actual=Y - X),
    "one element": evaluated(torch.add, X, Y, actual=changed(X + Y, 77, 3.0)),
    "one element of many, by a thousandth": evaluated(
        torch.mul, X, X, actual=changed(X * X, 77, float((X * X).view(-1)[77]) * 1.001)
    ),
    "a term too few": evaluated(lambda x: x.sum(1), X, actual=X[:, :-1].sum(1), terms=33),
    "bfloat16 instead of float32": evaluated(torch.mul, X, X, actual=(X.bfloat16() * X.bfloat16()).float()),
    "a NaN that the program does not have": evaluated(torch.add, X, X, actual=changed(X + X, 5, NAN)),
    "an infinity that the program does not have": evaluated(torch.add, X, X, actual=changed(X + X, 5, INF)),
    "a number in place of NaN": evaluated(lambda x: x * NAN, X, actual=X),
    "an infinity of the other sign": evaluated(lambda x: x / 0, X.abs(), actual=-(X.abs() / 0)),
    "a wrong index": evaluated(lambda x: x.argmax(1), X, actual=(X.argmax(1) + 1) % 33),
    "a wrong comparison": evaluated(torch.gt, X, X + 1, actual=torch.ones_like(X, dtype=torch.bool)),
    "integer overflow": evaluated(
        torch.mul, torch.full((4,), 100_000), torch.full((4,), 100_000), actual=torch.full((4,), 1410065408)
    ),
    "half precision, one element": evaluated(
        lambda x: x.exp(),
        values(64, dtype=torch.bfloat16),
        actual=changed(values(64, dtype=torch.bfloat16).exp(), 3, 9),
    ),
    "complex": evaluated(torch.mul, torch.complex(X, Y), torch.complex(Y, X), actual=torch.complex(X, Y)),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_rounding_does_not_explain_is_wrong(case: str) -> None:
    measured = measure(SUBJECT, WRONG[case])
    assert verdict_on_output(measured) is LaunchVerdict.WRONG
    assert measured.worst is not None
    assert measured.wrong > 0


def test_the_element_that_is_wrong_is_named() -> None:
    measured = measure(SUBJECT, WRONG["one element"])
    assert measured.worst is not None
    assert (measured.wrong, measured.worst.index, measured.worst.actual) == (1, 77, "3.0")
    assert measured.worst.eager == repr((X + Y).view(-1)[77].item())
    assert measured.atol == pytest.approx(abs(3.0 - float(measured.worst.expected)))


def test_an_index_that_selects_an_equal_element_is_right() -> None:
    ties = torch.tensor([[1.0, 5.0, 5.0]])
    output = evaluated(lambda x: x.argmax(1), ties, actual=torch.tensor([2]))
    assert verdict(replace(output, perturbed=())) is LaunchVerdict.WRONG
    assert verdict(replace(output, perturbed=(), ties=torch.tensor([True]))) is not LaunchVerdict.WRONG


def test_an_index_that_no_rounding_leads_to_is_wrong_beside_equal_elements() -> None:
    values = torch.tensor([[5.0, 5.0, 1.0]])
    output = evaluated(lambda x: x.argmax(1), values, actual=torch.tensor([2]))
    moved = (torch.tensor([1]), torch.tensor([0]))
    assert verdict(replace(output, perturbed=moved, ties=torch.tensor([False]))) is LaunchVerdict.WRONG
    reached = (*moved, torch.tensor([2]))
    assert verdict(replace(output, perturbed=reached, ties=torch.tensor([False]))) is not LaunchVerdict.WRONG


def test_units_in_the_last_place() -> None:
    steps = ulp(torch.tensor([1.0, 1.5, 2.0, -4.0, 0.0, INF], dtype=torch.float64), torch.float32)
    assert steps.tolist() == [2**-23, 2**-23, 2**-22, 2**-21, 2**-149, 2**-23]


MEASURED = Measurement(argument="buf0", value="add", operator="aten.add.Tensor", dtype="float32", shape=(4,), count=4)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (replace(MEASURED, equals_eager=True, relative_ulp=1e9), LaunchVerdict.OK),
        (replace(MEASURED, relative_ulp=3.9), LaunchVerdict.OK),
        (replace(MEASURED, relative_ulp=5, rms=1.0, eager_rms=2.1), LaunchVerdict.BETTER),
        (replace(MEASURED, relative_ulp=5, rms=1.0, eager_rms=1.9), LaunchVerdict.ROUNDING),
        (replace(MEASURED, relative_ulp=5, rms=1.0, sensitivity=65), LaunchVerdict.ILL_CONDITIONED),
        (replace(MEASURED, equals_eager=True, wrong=1), LaunchVerdict.WRONG),
    ],
)
def test_the_rule(measured: Measurement, expected: LaunchVerdict) -> None:
    assert verdict_on_output(measured) is expected


def test_a_launch_gets_the_worst_verdict_of_its_outputs() -> None:
    assert verdict_on([MEASURED, replace(MEASURED, wrong=1), MEASURED]) is LaunchVerdict.WRONG
    assert verdict_on([]) is LaunchVerdict.NOT_COMPARABLE


@pytest.mark.parametrize(("largest_sum", "wrong"), [(4e38, 0), (3e38, 1)])
def test_a_sum_that_overflows_in_another_order(largest_sum: float, wrong: int) -> None:
    right = torch.tensor([1e38, 1.0])
    output = Evaluated(
        actual=torch.tensor([torch.inf, 1.0]),
        eager=right,
        kernel=right,
        double=right.double(),
        terms=4,
        largest_sum=largest_sum,
    )
    assert measure(Subject("buf0", "sum_1", "aten.sum.default"), output).wrong == wrong
    small = Evaluated(
        actual=torch.tensor([1e38, torch.inf]),
        eager=right,
        kernel=right,
        double=right.double(),
        terms=4,
        largest_sum=largest_sum,
    )
    assert measure(Subject("buf0", "sum_1", "aten.sum.default"), small).wrong == 1
