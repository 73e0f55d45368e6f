"""The graph of an exported program, called as often as eager calls it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.drawn_numbers import DrawnNumbers
from aoti_debug.compare.evaluate.exported_calls import Drawn, ExportedCalls
from aoti_debug.compare.evaluate.functions import FRESH, NotEvaluableError, RefusedError
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference

CALLS = 3
EAGER = Arithmetic.EAGER
SEEDLESS = Reference(FORMAT, torch.__version__, (Graph("", MODEL, (Node("output", NodeKind.OUTPUT, args=([],)),), ()),))


class Views(nn.Module):
    """Views that are overwritten, a state that grows, a part without gradients, normalisation with running means."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x: Tensor) -> dict[str, Any]:
        self.state[1:].add_(x.sum())
        y = x.clone()
        y[:, 0].mul_(2)
        y.view(-1)[3:5].fill_(7.0)
        with torch.no_grad():
            self.state.mul_(1.5)
        dropped = torch.nn.functional.dropout(y, 0.5, False)
        return {"z": self.norm(self.linear(y)), "state": self.state + 1, "half": y.chunk(2, 1)[1], "n": (3, dropped)}


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


class OverwritesItsInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2


class WithoutGradients(nn.Module):
    """A buffer, a view of one and running means that are overwritten where gradients are off."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("mean", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.count[1:].add_(1)
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            normal = self.norm(x)
        return x * self.count.sum() + self.mean + normal


class Casts(nn.Module):
    """Copies in another dtype that are overwritten."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        copied = x.to(torch.float64)
        copied.mul_(2)
        again = x.to(torch.bfloat16).float()
        again[:, 0] = -100.0
        return torch.tanh(copied) * x, again + x


CASES = [Views, Branches, OverwritesItsInput, WithoutGradients, Casts]


def exported(module: nn.Module, x: Tensor) -> Any:
    return torch.export.export(module, (x,))


def calls(
    program: Any, x: Tensor, arithmetic: Arithmetic = Arithmetic.EAGER, drawn: Drawn | None = None
) -> ExportedCalls:
    graphs = ReferenceGraphs()
    graphs.record_exported(program)
    reference = graphs.reference().of_exported
    assert reference is not None
    tensors = {name: tensor.detach().clone() for name, tensor in {**program.constants, **program.state_dict}.items()}

    def weight(node: Node) -> Tensor | None:
        found = tensors.get(node.target)
        return None if found is None else found.clone()

    return ExportedCalls(reference, arithmetic, "cpu", [x.clone()], weight, drawn=drawn)


@pytest.mark.parametrize("module", CASES)
@pytest.mark.parametrize("functional", [False, True])
def test_every_call_returns_what_eager_returns(module: type[nn.Module], functional: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8)
    program = exported(module().train(), x)
    program = program.run_decompositions() if functional else program
    called, eager, given = calls(program, x), copy.deepcopy(program.module()), x.clone()
    for _ in range(CALLS):
        expected = pytree.tree_leaves(eager(given))
        returned = called.call()
        assert len(returned) == len(expected)
        for value, wanted in zip(returned, expected, strict=True):
            assert torch.equal(value, wanted) if isinstance(wanted, Tensor) else value == wanted
        for name, buffer in eager.named_buffers():
            held = called.state(name)
            assert held is not None
            assert torch.equal(held, buffer)


def test_float64_rounds_less() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8)
    program = exported(Views().train(), x)
    double, single = calls(program, x, Arithmetic.DOUBLE), calls(program, x)
    for _ in range(CALLS):
        exact, rounded = double.call()[0], single.call()[0]
    assert exact.dtype == torch.float64
    assert 0 < float((exact - rounded).abs().max()) < 1e-5


def test_a_copy_in_another_dtype_is_a_copy_in_float64_too() -> None:
    x = torch.randn(2, 8)
    program = exported(Casts(), x)
    expected, returned = program.module()(x), calls(program, x, Arithmetic.DOUBLE).call()
    for value, wanted in zip(returned, expected, strict=True):
        assert torch.allclose(value, wanted.double(), rtol=1e-2)


def test_an_operator_that_overwrites_in_its_own_dtype_only() -> None:
    class Bits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.clone()
            y.view(torch.int32).zero_()
            return y

    x = torch.randn(2, 8)
    assert not calls(exported(Bits(), x), x).call()[0].any()
    with pytest.raises(NotEvaluableError):
        calls(exported(Bits(), x), x, Arithmetic.DOUBLE).call()


def test_another_number_of_inputs() -> None:
    graphs = ReferenceGraphs()
    graphs.record_exported(exported(OverwritesItsInput(), torch.randn(2, 8)))
    reference = graphs.reference().of_exported
    assert reference is not None
    with pytest.raises(NotEvaluableError, match="it takes 1 inputs, and 0 were recorded"):
        ExportedCalls(reference, Arithmetic.EAGER, "cpu", [], lambda _: None)


def test_each_node_is_shown_with_its_value() -> None:
    x = torch.randn(2, 8)
    seen: dict[str, float] = {}

    def look(node: Node, value: Any) -> None:
        seen[node.name] = float(value.sum())

    (result,) = calls(exported(OverwritesItsInput(), x), x).call(look)
    assert list(seen) == ["add_", "mul"]
    assert seen["mul"] == pytest.approx(float(result.sum()))


def test_a_weight_that_is_not_known() -> None:
    x = torch.randn(2, 8)
    graphs = ReferenceGraphs()
    graphs.record_exported(exported(Views(), x))
    reference = graphs.reference().of_exported
    assert reference is not None
    with pytest.raises(NotEvaluableError, match="the weight state is not known"):
        ExportedCalls(reference, Arithmetic.EAGER, "cpu", [x], lambda _: None).call()


def test_random_numbers_are_not_drawn() -> None:
    x = torch.randn(2, 8)

    class Random(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.dropout(x, 0.5, True)

    with pytest.raises(NotEvaluableError, match=r"random numbers: aten\.dropout\.default"):
        calls(exported(Random(), x), x).call()


def test_an_operator_that_overwrites_what_its_schema_does_not_declare() -> None:
    @torch.library.custom_op("aoti_debug_test_calls::sums", mutates_args={})
    def sums(kept: Tensor, rows: Tensor) -> Tensor:
        rows.mul_(2)
        return kept.sum(1) + rows.sum(1)

    @sums.register_fake
    def _(kept: Tensor, rows: Tensor) -> Tensor:
        return kept.new_empty(kept.shape[0])

    class Sums(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return sums(x.sin(), x + 1)

    x = torch.randn(2, 8)
    called = calls(exported(Sums(), x), x)
    called.call()
    assert list(called.undeclared.values()) == ["overwrites its argument rows"]
    declared = calls(exported(OverwritesItsInput(), x), x)
    declared.call()
    assert not declared.undeclared


def test_an_operator_that_returns_memory_of_an_argument_against_its_schema() -> None:
    library = torch.library.Library("aoti_debug_test_calls", "FRAGMENT")
    library.define("tail(Tensor x) -> Tensor")
    library.define("tail_copy(Tensor x) -> Tensor")
    for name, copied in (("tail", False), ("tail_copy", True)):
        library.impl(name, lambda x, copied=copied: x[1:].clone() if copied else x[1:], "CPU")
        fake = f"aoti_debug_test_calls::{name}"
        torch.library.register_fake(fake, lambda x: x.new_empty(x.shape[0] - 1), lib=library)

    class Tails(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            operators = torch.ops.aoti_debug_test_calls
            return tuple(operator(x + 1) * 2 for operator in (operators.tail_copy, operators.tail))

    x = torch.randn(9)
    called = calls(exported(Tails(), x), x)
    called.call()
    assert list(called.undeclared.items()) == [("tail", "returns memory of its argument x")]


def test_fresh_memory_is_filled_as_it_is_asked_for() -> None:
    class Half(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y, z = torch.empty_like(x), torch.empty_like(x)
            y[:1] = x[:1]
            z.copy_(x)
            return y, z

    x = torch.randn(2, 8)
    called = calls(exported(Half(), x), x)
    fresh = [node.name for node in called.graph.nodes if node.target in FRESH]
    called.fills = dict.fromkeys(fresh, 1)
    y, z = called.call()
    assert len(fresh) == 2
    assert bool(y[1:].isnan().all())
    assert torch.equal(y[:1], x[:1])
    assert torch.equal(z, x)


class Bytes(nn.Module):
    """Integers that are added to in place and wrap around, and a number that an integer cannot hold."""

    def forward(self, x: Tensor) -> Tensor:
        wide = (x * 1e20).to(torch.int32)
        return wide.to(torch.uint8).add_(200).add_(100)


def test_results_that_are_not_exact_are_noted_once_for_a_node() -> None:
    x = torch.ones(4)
    with torch.no_grad():
        called = calls(exported(Bytes(), x), x)
        called.call()
        called.call()
    targets = {called.graph.by_name[name].target: found for name, found in called.inexact.items()}
    assert targets["aten.to.dtype"].is_open or "cannot hold" in targets["aten.to.dtype"].seen
    added = next(found for target, found in targets.items() if target.startswith("aten.add_"))
    assert added.seen.startswith("wraps around in 4 of 4 elements, beyond the range of uint8")
    exact = calls(exported(Casts(), torch.ones(4, 8)), torch.ones(4, 8))
    exact.call()
    assert not exact.inexact


class Filled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.expand(3, 2, 8).fill_(2.0)
        return x + 1


class Windows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sin()
        y.as_strided((3, 4), (2, 1)).mul_(2)
        return y + 1


def test_elements_that_are_one_place_in_memory_are_filled_in_any_order() -> None:
    x = torch.randn(2, 8)
    for arithmetic in (Arithmetic.EAGER, Arithmetic.DOUBLE):
        called = calls(exported(Filled(), x), x, arithmetic)
        assert torch.equal(called.call()[0].float(), torch.full((2, 8), 3.0))
        assert not called.inexact


def test_elements_that_are_one_place_in_memory_and_are_read_and_written() -> None:
    x = torch.randn(2, 8)
    program = exported(Windows(), x)
    called = calls(program, x)
    assert torch.equal(called.call()[0], program.module()(x))
    assert called.inexact["mul_"].is_open
    assert called.inexact["mul_"].seen.startswith("overwrites a tensor of which several elements are one place")
    with pytest.raises(NotEvaluableError, match=r"aten\.mul_\.Tensor overwrites a tensor of which several elements"):
        calls(program, x, Arithmetic.DOUBLE).call()


def test_what_is_copied_from_may_have_elements_that_are_one_place_in_memory() -> None:
    class Copied(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.zeros(4, 8)
            y[1:3] = x[0].expand(2, 8)
            return y + x.sum()

    x = torch.randn(2, 8)
    assert calls(exported(Copied(), x), x, Arithmetic.DOUBLE).call()[0].shape == (4, 8)


class Coins(nn.Module):
    def forward(self, p: Tensor) -> Tensor:
        return torch.bernoulli(p)


@pytest.mark.parametrize(("probability", "error"), [(0.5, NotEvaluableError), (1.5, RefusedError)])
def test_an_operator_whose_numbers_are_not_known_refuses_its_arguments_all_the_same(
    probability: float, error: type[Exception]
) -> None:
    p = torch.full((3,), 0.5)
    program = calls(
        exported(Coins(), p), p.fill_(probability), drawn=lambda _: DrawnNumbers(SEEDLESS, {}, EAGER, "cpu")
    )
    with pytest.raises(error) as raised:
        program.call()
    assert type(raised.value) is error
