"""The node that torch worked on when it raised an exception; operators that overwrite what a loop is passed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

from aoti_debug.instrument.frontend.worker.failed_lowering import node_at_work, overwritten_operands


def graph() -> fx.Graph:
    """x → its sine."""
    made = fx.Graph()
    made.output(made.call_function(torch.ops.aten.sin.default, (made.placeholder("x"),)))
    return made


def visit(graph: fx.Graph) -> None:
    """Refuses the first node that calls a function, as a pass would."""
    for n in graph.nodes:
        if n.op == "call_function":
            raise AssertionError("no such node")


def test_the_innermost_function_with_a_node() -> None:
    with pytest.raises(AssertionError) as raised:
        visit(graph())
    found = node_at_work(raised.value)
    assert found.startswith(f"visit ({__file__}:")
    assert found.endswith("raised it at node sin_default, a call of aten.sin.default")


def test_without_a_node_nothing_is_said() -> None:
    assert node_at_work(None) == ""
    with pytest.raises(ValueError, match="3") as raised:
        int("x3")
    assert node_at_work(raised.value) == ""


@torch.library.custom_op("test_overwritten_operands::bump", mutates_args={"x"})
def bump(x: Tensor, by: Tensor) -> None:
    x.add_(by)


class Loop(nn.Module):
    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.copies = copies

    def forward(self, start: Tensor, by: Tensor) -> Tensor:
        def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            own = x.clone() if self.copies else x
            bump(own, by)
            return i + 1, own * 1.5

        count = torch.zeros((), dtype=torch.int64)
        return torch._higher_order_ops.while_loop(lambda i, _: i < 4, step, (count, start.sin()))[1]


@pytest.mark.parametrize("copies", [False, True])
def test_the_operator_that_overwrites_what_a_loop_carries(copies: bool) -> None:
    try:
        with torch.no_grad():  # otherwise the export itself refuses
            program = torch.export.export(Loop(copies), (torch.randn(8), torch.randn(8)))
    except torch._dynamo.exc.UncapturedHigherOrderOpError as refused:
        if copies or "do not support input mutation" not in str(refused):
            raise
        pytest.skip("this torch exports no loop that overwrites what it carries")
    error = RuntimeError("body_fn might be modifying the input!")
    said = overwritten_operands(program, error)
    if copies:
        assert said == ""
    else:
        assert said.startswith("test_overwritten_operands.bump.default overwrites ")
        assert "which while_loop is passed, in while_loop_body_graph_0 (test_failed_lowering.py:" in said
    assert overwritten_operands(program, RuntimeError("no such layout")) == ""
