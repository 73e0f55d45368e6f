"""Outputs that are measured a part at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.measure import differences
from aoti_debug.compare.measure.differences import deviating, is_one_step, is_rounded_to_integers, is_suspicious
from aoti_debug.compare.measure.evaluated import Evaluated, Subject
from aoti_debug.compare.measure.measure import measure
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind, TensorType
from tests.compare.anonymous_memory import growth

SUBJECT = Subject("buf0", "mul", "aten.mul.Tensor")


def exact(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def output(values: torch.Tensor, dtype: torch.dtype = torch.float32) -> Evaluated:
    return Evaluated(
        actual=(values * (1 + 1e-7)).to(dtype), eager=values.to(dtype), kernel=values.float(), double=values
    )


def wrong(found: Evaluated) -> Evaluated:
    actual = found.actual.clone()
    actual[..., 3] += 1
    return replace(found, actual=actual, perturbed=(found.double * (1 + 1e-7), found.double * (1 - 1e-7)))


def nonfinite(found: Evaluated) -> Evaluated:
    actual, eager = found.actual.clone(), found.eager.clone()
    actual[1, 2] = eager[1, 2] = found.double[1, 2] = float("nan")
    actual[4, 0] = float("inf")
    return replace(found, actual=actual, eager=eager)


def truncated(values: torch.Tensor) -> Evaluated:
    bits = values.float().view(torch.int32) & -65536
    return Evaluated(
        actual=bits.view(torch.float32).bfloat16(), eager=values.bfloat16(), kernel=values.float(), double=values
    )


CASES = {
    "rounded": output(exact(7, 33)),
    "of three dimensions": output(exact(3, 5, 11)),
    "in another order": output(exact(33, 7).T),
    "wrong": wrong(output(exact(7, 33))),
    "not finite": nonfinite(output(exact(7, 33))),
    "leaning to one side": truncated(exact(40, 33)),
    "equal to eager": replace(output(exact(7, 33)), actual=output(exact(7, 33)).eager),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_are_measured_like_the_whole(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    whole = measure(SUBJECT, CASES[name])
    monkeypatch.setattr(differences, "_PART", 20)
    parts = measure(SUBJECT, CASES[name])
    assert bool(whole.wrong) == (name in ("wrong", "not finite", "leaning to one side"))
    for member in Measurement.__dataclass_fields__:
        first, second = getattr(whole, member), getattr(parts, member)
        assert second == (pytest.approx(first, rel=1e-12) if isinstance(first, float) else first), member


def test_a_large_output_takes_little_memory() -> None:
    found = output(exact(4 << 20))
    with growth() as grown:
        measure(SUBJECT, found)
    assert grown.bytes < 14 * found.actual.nbytes  # errors in ULP in float64 are twice its size; a part is 1/4 of it


torch.manual_seed(0)
EXACT = torch.randn(64, 64, dtype=torch.float64)
SCALES = torch.where(torch.arange(64) < 1, 1e6, 1.0).double()


def rounded(exact: torch.Tensor, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Numbers in a dtype, with some rounding errors of its arithmetic."""
    chance = torch.Generator().manual_seed(seed)
    noise = torch.randn(exact.shape, generator=chance, dtype=torch.float64) * torch.finfo(dtype).eps
    return (exact * (1 + noise)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("scales", [torch.ones(64).double(), SCALES])
def test_rounding_deviates_nowhere(dtype: torch.dtype, scales: torch.Tensor) -> None:
    exact = EXACT * scales
    actual, eager = rounded(exact, dtype, 1), rounded(exact, dtype, 2)
    assert not deviating(actual, eager, exact, str(dtype).removeprefix("torch.")).any()


@pytest.mark.parametrize("scales", [torch.ones(64).double(), SCALES])
@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1.001), (torch.bfloat16, 1.5)])
def test_one_element_among_many_and_beside_large_ones(scales: torch.Tensor, dtype: torch.dtype, factor: float) -> None:
    exact = EXACT * scales
    actual, eager = rounded(exact, dtype, 1), rounded(exact, dtype, 2)
    actual[5, 7] *= factor
    name = str(dtype).removeprefix("torch.")
    assert is_suspicious(actual, eager, name)
    assert deviating(actual, eager, exact, name).nonzero().tolist() == [[5 * 64 + 7]]


def test_equal_outputs_and_rounding_are_not_suspicious() -> None:
    eager = rounded(EXACT, torch.float32, 2)
    assert not is_suspicious(eager.clone(), eager, "float32")
    assert not is_suspicious(rounded(EXACT, torch.float32, 1), eager, "float32")


def test_what_is_left_of_sums_that_cancel_is_no_deviation() -> None:
    exact = torch.full((64,), 1e-17, dtype=torch.float64)
    actual, eager = (torch.randn(64, generator=torch.Generator().manual_seed(seed)) * 1e-7 for seed in (1, 2))
    assert not deviating(actual, eager, exact, "float32").any()


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_integers_where_eager_and_float64_agree(name: str) -> None:
    actual, eager, exact = torch.tensor([1, 2, 3]), torch.tensor([1, 9, 9]), torch.tensor([1, 9, 3])
    assert is_suspicious(actual, eager, name)
    assert deviating(actual, eager, exact, name).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("actual", "eager", "exact", "is_wrong"),
    [
        (torch.nan, 1.0, 1.0, True),
        (torch.inf, 1.0, 1.0, True),
        (torch.nan, torch.nan, 1.0, False),
        (torch.nan, 1.0, torch.nan, False),
        (torch.inf, 3e38, 3.4e38, False),  # it may overflow in another order
        (1.0, torch.nan, torch.nan, True),
        (1.0, torch.inf, 1.0, False),
    ],
)
def test_numbers_that_are_not_finite(actual: float, eager: float, exact: float, is_wrong: bool) -> None:
    double = torch.tensor([exact, 1.0], dtype=torch.float64)
    found = deviating(torch.tensor([actual, 1.0]), torch.tensor([eager, 1.0]), double, "float32")
    assert found.tolist() == [is_wrong, False]


def test_a_complex_number_is_wrong_in_either_part() -> None:
    eager = torch.complex(EXACT.float(), EXACT.float())
    actual = eager.clone()
    actual[3, 4] += 0.01j
    exact = torch.complex(EXACT, EXACT)
    assert is_suspicious(actual, eager, "float32")
    assert deviating(actual, eager, exact, "float32").nonzero().tolist() == [[3 * 64 + 4]]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.float8_e4m3fn, torch.float8_e5m2])
def test_dtypes_that_torch_compares_no_numbers_of(dtype: torch.dtype) -> None:
    eager = torch.ones(4, 8, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    actual = eager.clone()
    actual[1, 2] = 16.0
    assert not is_suspicious(eager, eager.clone(), "float32")
    assert is_suspicious(actual, eager, "float32")
    assert deviating(actual, eager, eager.to(wide), "float32").nonzero().tolist() == [[10]]


@pytest.mark.parametrize(
    ("first", "second", "is_step"),
    [
        (torch.tensor([3, 4], dtype=torch.uint8), torch.tensor([2, 5], dtype=torch.uint8), True),
        (torch.tensor([0, 4], dtype=torch.uint8), torch.tensor([255, 4], dtype=torch.uint8), False),
        (torch.tensor([3, 4]), torch.tensor([5, 4]), False),
        (torch.tensor([3.0]), torch.tensor([2.0]), False),
        (torch.tensor([True]), torch.tensor([False]), False),
    ],
)
def test_integers_that_differ_by_one_at_most(first: Tensor, second: Tensor, is_step: bool) -> None:
    assert is_one_step(first, second) is is_step


@pytest.mark.parametrize(
    ("computed", "target", "is_rounded"),
    [
        ("float32", "prims.convert_element_type.default", True),
        ("int32", "prims.convert_element_type.default", False),
        ("float32", "aten.argmax.default", False),
    ],
)
def test_integers_that_a_cast_makes(computed: str, target: str, is_rounded: bool) -> None:
    """Also where they are only moved afterwards."""

    def call(name: str, operator: str, read: str, dtype: str) -> Node:
        types = (TensorType(dtype, "cpu", ("4",), ("1",)),)
        return Node(name, NodeKind.CALL, operator, ({"node": read},), types=types)

    nodes = (
        Node("x", NodeKind.INPUT),
        call("round", "aten.round.default", "x", computed),
        call("cast", target, "round", "uint8"),
        call("view", "aten.view.default", "cast", "uint8"),
        Node("output", NodeKind.OUTPUT, "output", ([{"node": "view"}],)),
    )
    graph = Graph("", MODEL, nodes, ())
    assert is_rounded_to_integers(graph, 0) is is_rounded
    assert not is_rounded_to_integers(graph, 1)
    assert not is_rounded_to_integers(None, 0)
