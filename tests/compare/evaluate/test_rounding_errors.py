"""The bounds of functions, and their table in docs/compare.md."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.compare.evaluate.arithmetic import LARGE, Arithmetic, Narrow
from aoti_debug.compare.evaluate.exported_calls import ExportedCalls
from aoti_debug.compare.evaluate.rounding_errors import FUNCTION_BOUNDS, FunctionBound, RoundingNoise, bound_of, moved
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package.program_graphs import Node, NodeKind, TensorType
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


def call(target: str, dtype: str = "float32", mutates: tuple[str, ...] = ()) -> Node:
    type_ = TensorType(dtype, "cpu", (), ())
    return Node("node", NodeKind.CALL, target, types=(type_,), mutates=mutates)


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 2.0**-23), ("bfloat16", 2.0**-7), ("float64", 2.0**-52)])
def test_a_result_moves_by_several_units_of_its_own_dtype(dtype: str, unit: float) -> None:
    noise, values = RoundingNoise(0, 8), torch.ones(4, 50, dtype=torch.float64)
    change = (noise.result(call("aten.exp.default", dtype), [], values) - 1).abs().max()
    assert 4 * unit < float(change) <= 8 * unit


def test_a_function_moves_by_its_bound_in_units_of_its_result() -> None:
    noise, small = RoundingNoise(0, 1), torch.full((200,), 1e-12, dtype=torch.float64)
    units = (noise.result(call("aten.tanh.default"), [], small) / small - 1).abs().max() / 2.0**-23
    assert 1 < float(units) <= FUNCTION_BOUNDS["tanh"].cpu


def test_views_and_integers_stay() -> None:
    noise, values = RoundingNoise(0, 8), torch.ones(4, 50, dtype=torch.float64)
    view = values.t()
    assert noise.result(call("aten.t.default"), [values], view) is view
    assert noise.result(call("aten.slice.Tensor"), [[values]], values[1:]).data_ptr() == values[1:].data_ptr()
    numbers = torch.arange(3)
    assert noise.result(call("aten.arange.default"), [], numbers) is numbers
    first, second = noise.result(call("aten.max.dim"), [values], (values.amax(1), numbers))
    assert not torch.equal(first, values.amax(1))
    assert second is numbers


def test_what_is_overwritten_moves_in_place() -> None:
    state = torch.ones(100, dtype=torch.float64)
    result = RoundingNoise(0, 8).result(call("aten.add_.Tensor", mutates=("state",)), [state], state)
    assert result is state
    assert 0 < float((state - 1).abs().max()) <= 8 * 2.0**-23


def test_inputs_move_up_or_down_and_large_ones_when_they_are_read() -> None:
    noise = RoundingNoise(0, 2)
    assert set((noise.begun(torch.ones(100)) - 1).tolist()) == {2.0**-22, -(2.0**-22)}
    assert noise.begun(7) == 7
    numbers = torch.arange(3)
    assert noise.begun(numbers) is numbers
    large = moved(torch.ones(LARGE, dtype=torch.float16), torch.Generator().manual_seed(0), 2.0**22)
    assert isinstance(large, Narrow)
    assert set(large.wide()[:100].tolist()) == {0.5, 1.5}


def test_terms_of_sums_move_as_rounding_adds_up() -> None:
    terms = 1 << 16
    values = torch.ones(terms, dtype=torch.float64)
    noise = RoundingNoise(0, 1)
    assert noise.arguments(call("aten.exp.default"), [values], 1)[0] is values
    (noisy,) = noise.arguments(call("aten.sum.default"), [values], terms)
    assert 32 * 2.0**-23 < float((noisy - 1).abs().max()) <= 65 * 2.0**-23


class Unstable(nn.Module):
    """What is left of sums that cancel, and of a variance of numbers that are alike; a state that is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.state.mul_(0.5)
        self.state.add_(x.sum())
        return x.sum(), (x + 5e4).var(), x.exp()


def test_a_program_moves_where_rounding_matters() -> None:
    torch.manual_seed(0)
    half = 1e6 * torch.randn(1 << 12)
    x = torch.cat([half, -half, torch.full((8,), 0.01)])
    graphs = ReferenceGraphs()
    graphs.record_exported(torch.export.export(Unstable(), (x,)))
    reference = graphs.reference().of_exported
    assert reference is not None

    def returned(noise: RoundingNoise | None) -> list[Tensor]:
        program = ExportedCalls(
            reference, Arithmetic.DOUBLE, "cpu", [x.clone()], lambda _: torch.zeros(()), noise=noise
        )
        values = [program.call(), program.call()][-1]
        state = program.state("state")
        assert state is not None
        return [values[0], state]

    exact, noisy, again = returned(None), returned(RoundingNoise(0, 1)), returned(RoundingNoise(0, 1))
    for right, other, same in zip(exact, noisy, again, strict=True):
        assert abs(float(other - right)) > 0.1 * abs(float(right))
        assert float(other) == float(same)
