"""The operators that explain the wrong outputs of a region."""

from __future__ import annotations

import torch

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.protocol.measurement import Explanation
from aoti_debug.compare.protocol.request import KnownValue, Recorded
from aoti_debug.compare.worker.explanations import Blamed, WrittenValue, explanations_of
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.reference.program import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey

FLOATS = (TensorType("float32", "cpu", ("8", "32"), ("32", "1")),)
GRAPH = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=FLOATS),
        Node("erf", NodeKind.CALL, "aten.erf.default", ({"node": "x"},), types=FLOATS),
        Node("sum", NodeKind.CALL, "aten.sum.dim_IntList", ({"node": "erf"}, [1], True)),
        Node("mul", NodeKind.CALL, "aten.mul.Tensor", ({"node": "erf"}, {"node": "sum"}), types=FLOATS),
    ),
    (),
)
NODES = ("erf", "sum", "mul")
X = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))


def copy() -> Evaluation:
    return Evaluation(Reference(FORMAT, "2.13", (GRAPH,)), GRAPH, Arithmetic.KERNEL, "cpu")


def explained(columns: int, rows: int = 8) -> tuple[Explanation, ...]:
    """What explains a product that is right but for some columns and rows, where it holds tanh instead of erf."""
    right = copy()
    right.set(ValueKey("x"), X)
    for name in NODES:
        right.run(GRAPH.by_name[name])
    product = right.value(ValueKey("mul")).clone()
    product[:rows, :columns] = (X.tanh() * X.erf().sum(1, keepdim=True))[:rows, :columns]
    outputs = [
        WrittenValue(KnownValue(ValueKey(name), Recorded("0.0", name, "")), actual, Symbols())
        for name, actual in (("sum", right.value(ValueKey("sum"))), ("mul", product))
    ]
    return explanations_of(Blamed(GRAPH, NODES, outputs, {"mul"}), right, copy)


def test_an_operator_explains_the_elements_that_are_wrong() -> None:
    (best, *_) = explained(columns=20)
    assert (best.node, best.how, best.is_partial) == ("erf", "as tanh", True)
    (best, *_) = explained(columns=32)
    how = "as tanh, but not where sum reads it"
    assert (best.node, best.how, best.is_partial) == ("erf", how, False), "of all elements"


def test_few_elements_are_explained_by_nothing() -> None:
    assert explained(columns=5, rows=1) == ()
