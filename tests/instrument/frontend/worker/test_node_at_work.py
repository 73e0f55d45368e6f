"""The node that torch worked on when it raised an exception."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from aoti_debug.instrument.frontend.worker.node_at_work import node_at_work


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
