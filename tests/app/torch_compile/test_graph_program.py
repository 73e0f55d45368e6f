"""Graphs of AOT autograd as exported programs."""

from __future__ import annotations

import torch

from aoti_debug.app.torch_compile import graph_program
from tests.app.torch_compile.graphs import traced


def square(x: torch.Tensor) -> torch.Tensor:
    return x.square() * 2


def with_sizes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, y]).reshape(-1) / x.shape[0]


def test_a_graph_of_fixed_sizes() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    graph = traced(square, x)["inference"]
    program = graph_program.exported(graph, [x], dynamic=False)
    assert torch.equal(program.module()(x)[0], square(x))
    assert graph_program.model_line(graph).endswith("test_graph_program.py:12 in square")
    lines = [node.meta["stack_trace"] for node in program.graph.nodes if node.op == "call_function"]
    assert all("x.square() * 2" in line for line in lines)


def test_sizes_that_change_are_symbolic() -> None:
    x, y = torch.randn(4, 3), torch.randn(5, 3)
    graph = traced(with_sizes, x, y, dynamic=True)["inference"]
    known = graph_program.inputs_of(graph)
    assert known.sizes
    assert not known.numbers
    values = [x, y]
    inputs = [
        values[known.tensors.index(n)] if n in known.tensors else _size(values, known, n)
        for n in range(len(known.tensors) + len(known.sizes))
    ]
    program = graph_program.exported(graph, inputs, dynamic=True)
    for rows in (4, 7):
        x = torch.randn(rows, 3)
        assert torch.equal(program.module()(x, y)[0], with_sizes(x, y))


def _size(tensors: list[torch.Tensor], known: graph_program.GraphInputs, position: int) -> int:
    size = known.sizes[position]
    return int(tensors[known.tensors.index(size.position)].shape[size.dim])


def test_outputs_that_are_inputs_or_sizes_are_not_computed_by_the_program() -> None:
    x = torch.randn(4, 3, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * x).sum(0).expand(x.shape[0] * 2, 3)

    graphs = traced(function, x, dynamic=True)
    graph = graphs["forward"]
    known, outputs = graph_program.inputs_of(graph), graph_program.outputs_of(graph)
    assert outputs.count == len(outputs.passed) + len(outputs.computed) + len(outputs.numbers)
    assert outputs.passed
    inputs = [x if n in known.tensors else 4 for n in range(len(known.tensors) + len(known.sizes))]
    results = graph_program.exported(graph, inputs, dynamic=True).module()(x.detach())
    joined = outputs.joined(inputs, results)
    assert all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(joined, graph(*inputs), strict=True)
    )
    assert "backward" in graphs


def test_a_program_overwrites_the_inputs_that_its_graph_overwrites() -> None:
    def update(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state.mul_(2).add_(x)
        return x + 1

    x, state = torch.randn(3), torch.randn(3)
    graph = traced(update, x, state.clone())["inference"]
    known, outputs = graph_program.inputs_of(graph), graph_program.outputs_of(graph)
    assert len(known.overwritten) == 1
    assert len(outputs.computed) == 1
    (position,) = known.overwritten
    inputs = [x, x]
    inputs[position] = state
    expected = state * 2 + x
    (returned,) = graph_program.exported(graph, inputs, dynamic=False).module()(*inputs)
    assert torch.equal(returned, x + 1)
    assert torch.equal(state, expected)
