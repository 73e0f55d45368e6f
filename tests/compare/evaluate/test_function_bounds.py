"""The bounds of functions, and their table in docs/compare.md."""

from __future__ import annotations

import pytest

from aoti_debug.compare.evaluate.function_bounds import FUNCTION_BOUNDS, FunctionBound, bound_of
from tests.paths import ROOT


def row(bound: FunctionBound) -> str:
    """A row of the table in the documentation."""

    def cell(units: float, argument: float) -> str:
        return f"{units:g}, argument {argument:g}" if argument else f"{units:g}"

    cpu, cuda = cell(bound.cpu, bound.cpu_argument), cell(bound.cuda, bound.cuda_argument)
    return f"| `{bound.name}` | {cpu} | {cuda} | {bound.source} |"


def test_the_documentation_has_every_bound_and_no_other() -> None:
    head = "| function | CPU | CUDA | source of the bound on a CPU |\n|---|---|---|---|\n"
    table = (ROOT / "docs" / "compare.md").read_text().split(head)[1].split("\n\n")[0]
    assert table.splitlines() == [row(bound) for bound in FUNCTION_BOUNDS.values()]


def test_bounds_are_ordered_by_name_and_positive() -> None:
    assert list(FUNCTION_BOUNDS) == sorted(FUNCTION_BOUNDS)
    assert all(bound.cpu >= 1 and bound.cuda >= 1 and bound.source for bound in FUNCTION_BOUNDS.values())


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("aten.tanh.default", "tanh"),
        ("aten.special_i0e.default", "i0e"),
        ("aten.pow.Tensor_Scalar", "pow"),
        ("prims.exp.default", "exp"),
        ("aten.add.Tensor", None),
        ("mine.tanh.default", None),
        ("_operator.getitem", None),
        ("higher_order.cond", None),
    ],
)
def test_operators_have_the_bound_of_their_function(target: str, name: str | None) -> None:
    found = bound_of(target)
    assert (found and found.name) == name


def test_a_bound_depends_on_the_device() -> None:
    exp = FUNCTION_BOUNDS["exp"]
    assert (exp.on("cpu"), exp.on("cuda:1")) == (exp.cpu, exp.cuda)
    assert (exp.argument_on("cpu"), exp.argument_on("cuda:0")) == (0, 1)
    assert (FUNCTION_BOUNDS["erf"].summand_on("cpu"), FUNCTION_BOUNDS["erf"].summand_on("cuda:0")) == (12, 0)
