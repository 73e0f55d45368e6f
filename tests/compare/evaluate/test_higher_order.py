"""Operators whose arguments are graphs, evaluated from the recorded graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.flex_attention import create_fw_bw_graph, flex_attention_backward
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import flex_attention

from aoti_debug.compare.evaluate import higher_order
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.exported_calls import ExportedCalls
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package.program_graphs import MODEL, NodeKind, ValueKey


@torch.library.custom_op("test_higher_order::accumulate", mutates_args={"x"})
def accumulate(x: Tensor, by: Tensor) -> None:
    x.add_(by)


class Attention(nn.Module):
    """Grouped heads; scores from a table, by rows that memory says; a mask; the logarithms of the sums as well."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, offset: Tensor) -> Any:
        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(i + h >= j, s * 1.5 + bias[offset[j] + i], -float("inf"))

        return flex_attention(q.sin(), k, v, score_mod=score, enable_gqa=True, return_lse=True)


class Loops(nn.Module):
    """A scan, a map, and a branch in the body of a loop; beside it another branch of the same name."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        last, all_ = scan(lambda c, row: (c * 0.5 + row, c.relu()), y, x)
        mapped = torch._higher_order_ops.map(lambda row, by: (row * by).sin(), x, y)

        def step(i: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.cond(a.sum() > 0, lambda u: u.sin() - 1, lambda u: u.cos() + 1, (a,))

        count = torch.zeros((), dtype=torch.int64)
        looped = torch._higher_order_ops.while_loop(lambda i, _: i < 3, step, (count, y))[1]
        other = torch.cond(looped.sum() > 100, lambda u, w: u * w, lambda u, w: u - w, (looped, y))
        return last, all_, mapped, looped, other


class Wrapped(nn.Module):
    def forward(self, x: Tensor) -> Any:
        hinted = hints_wrapper(lambda a: (a.sin() * 2,), (x,), {}, hints={"outer": True})[0]
        small = (x * 4).to(torch.int8).reshape(2, -1)
        return hinted, out_dtype(torch.ops.aten.mm.default, torch.int32, small, small.T)


class Overwrites(nn.Module):
    def forward(self, x: Tensor) -> Any:
        y = x.sin()
        accumulate(y, x)
        accumulate(y[:2], x[2:4])
        return y * 2


def attention_inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((2, 4, 12, 8), (2, 2, 16, 8), (2, 2, 16, 8), (64,))
    floats = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
    return (*floats, torch.arange(16) % 5)


MODELS = [
    (Attention(), attention_inputs(), ("flex_attention",)),
    (
        Loops(),
        (torch.arange(12.0).reshape(3, 4).sin(), torch.arange(4.0).cos()),
        ("cond", "map_impl", "scan", "while_loop"),
    ),
    (Wrapped(), (torch.arange(8.0).cos(),), ("hints_wrapper", "out_dtype")),
    (Overwrites(), (torch.arange(4.0),), ("auto_functionalized_v2",)),
]


def recorded(model: nn.Module, inputs: Sequence[Tensor]) -> Any:
    """The reference of an exported program, and the program."""
    with torch.no_grad():
        program = torch.export.export(model, tuple(inputs))
    if isinstance(model, Overwrites):
        program = program.run_decompositions()
    graphs = ReferenceGraphs()
    graphs.record_exported(program)
    reference = graphs.reference().of_exported
    assert reference is not None
    return reference, program


@pytest.mark.parametrize(("model", "inputs", "operators"), MODELS, ids=[type(model).__name__ for model, *_ in MODELS])
def test_the_program_is_called_as_eager_does(
    model: nn.Module, inputs: tuple[Tensor, ...], operators: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(higher_order, "_SCORES", 5 * 2 * 4 * 16 * 4)  # five rows of a query at a time
    reference, _ = recorded(model, inputs)
    called = {node.target.removeprefix("higher_order.") for graph in reference.graphs for node in graph.nodes}
    assert called >= set(operators)
    eager, double = (
        ExportedCalls(reference, arithmetic, "cpu", inputs, lambda _: None).call()
        for arithmetic in (Arithmetic.EAGER, Arithmetic.DOUBLE)
    )
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
        wide = [t.double() if t.is_floating_point() else t for t in inputs]
        exact = torch.utils._pytree.tree_leaves(model(*wide))
    for value, right in zip(eager, expected, strict=True):
        torch.testing.assert_close(value, right)
    for value, right in zip(double, exact, strict=True):
        torch.testing.assert_close(value, right, rtol=1e-12, atol=1e-12)


def joint_attention(inputs: Sequence[Tensor]) -> torch.fx.GraphModule:
    """A graph that calls the backward pass of attention, as AOT autograd makes it."""
    q, k, _, bias, _ = inputs

    def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor, table: Tensor) -> Tensor:
        return s * 1.5 + torch.ops.aten.index.Tensor(table, [i + j])

    numbers = [torch.zeros((), dtype=torch.int32) for _ in range(4)]
    _, joint = create_fw_bw_graph(
        score, (q.new_zeros((), requires_grad=True), *numbers), (bias.clone().requires_grad_(),)
    )
    root = nn.Module()
    root.fw, root.joint = torch.fx.symbolic_trace(score), joint
    root.mask = torch.fx.symbolic_trace(_all)
    graph = torch.fx.Graph(root)
    names = ("q", "k", "v", "bias", "out", "lse", "gradient")
    values = [graph.placeholder(name) for name in names]
    tables = (q.shape[2], k.shape[2], *([None] * (len(_block_mask()) - 5)), 128, 128)
    mask = (*tables, graph.get_attr("mask"))
    graph_arguments: tuple[Any, ...] = (graph.get_attr("fw"), graph.get_attr("joint"), mask, 0.25, {}, (values[3],), ())
    given = (*values[:3], *values[4:6], values[6], None)
    call = graph.call_function(flex_attention_backward, (*given, *graph_arguments))
    graph.output(call)
    return torch.fx.GraphModule(root, graph)


def _all(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.ops.aten.ge.Scalar(j, 0)


def _block_mask() -> tuple[Any, ...]:
    from torch.nn.attention.flex_attention import _create_empty_block_mask

    query = torch.zeros(1, 1, 16, 8)
    return tuple(_create_empty_block_mask(query, query).as_tuple())


def test_the_backward_pass_of_attention() -> None:
    q, k, v, bias, _ = inputs = attention_inputs(torch.float64)
    gradient = torch.ones(2, 4, 12, 8, dtype=torch.float64).cumsum(-1)
    leaves = [t.clone().requires_grad_() for t in (q, k, v, bias)]
    keys, values = (t.repeat_interleave(2, 1) for t in leaves[1:3])
    places = torch.arange(12)[:, None] + torch.arange(16)
    scores = (leaves[0] @ keys.transpose(-1, -2)) * 0.25 * 1.5 + leaves[3][places]
    out, lse = scores.softmax(-1) @ values, scores.logsumexp(-1) / math.log(2)  # torch's kernels use powers of two
    expected = torch.autograd.grad(out, leaves, gradient)
    graphs = ReferenceGraphs()
    module = joint_attention(inputs)
    graphs.begin(SimpleNamespace(name=None, is_const_graph=False, module=module))
    graph = graphs.reference().graph("", MODEL)
    assert graph is not None
    evaluation = Evaluation(graphs.reference(), graph, Arithmetic.DOUBLE, "cpu")
    given = (q, k, v, bias, out.detach(), lse.detach(), gradient)
    for node, value in zip((n for n in graph.nodes if n.kind is NodeKind.INPUT), given, strict=True):
        evaluation.set(ValueKey(node.name), value)
    evaluation.run(next(node for node in graph.nodes if node.kind is NodeKind.CALL))
    assert evaluation.failures == {}
    *found, of_table = evaluation.value(ValueKey("flex_attention_backward"))
    assert of_table == [None]
    for value, right in zip(found, expected[:3], strict=True):
        torch.testing.assert_close(value, right, rtol=1e-9, atol=1e-9)


def test_scores_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(higher_order, "_MAX_SCORES", 1 << 10)
    q, k, *_ = attention_inputs()
    with pytest.raises(MemoryError, match="the scores take"):
        higher_order.function_of(higher_order.ATTENTION_BACKWARD)(q, k)
