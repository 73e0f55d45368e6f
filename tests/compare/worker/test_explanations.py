"""The operators that explain the wrong outputs of a region."""

from __future__ import annotations

import torch

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Adjustment, Evaluation
from aoti_debug.compare.protocol.measurement import Explanation
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.worker.explanations import Blamed, Rounding, WrittenValue, decisive_rounding, explanations_of
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey

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


def of_integers(actual: torch.Tensor, x: torch.Tensor) -> tuple[Explanation, ...]:
    """What explains the largest number of each row, to which 1 is added."""
    type_ = (TensorType("int64", "cpu", ("32",), ("1",)),)
    nodes = (
        Node("x", NodeKind.INPUT, types=(TensorType("int64", "cpu", ("32", "4"), ("4", "1")),)),
        Node("amax", NodeKind.CALL, "aten.amax.default", ({"node": "x"}, [1]), types=type_),
        Node("add", NodeKind.CALL, "aten.add.Tensor", ({"node": "amax"}, 1), types=type_),
    )
    graph = Graph("", MODEL, nodes, ())
    reference = Reference(FORMAT, "2.13", (graph,))

    def evaluation() -> Evaluation:
        return Evaluation(reference, graph, Arithmetic.KERNEL, "cpu")

    right = evaluation()
    right.set(ValueKey("x"), x)
    for name in ("amax", "add"):
        right.run(graph.by_name[name])
    output = WrittenValue(KnownValue(ValueKey("add"), Recorded("0.0", "add", "")), actual, Symbols())
    return explanations_of(Blamed(graph, ("amax", "add"), [output], {"add"}), right, evaluation)


def test_one_step_between_integers_does_not_tell_operators_apart() -> None:
    x = torch.randint(0, 1000, (32, 4), generator=torch.Generator().manual_seed(0))
    assert of_integers(x.amax(1), x) == (), "the sum may lack its summand, and the maximum be one too small"
    (best, *_) = of_integers(x.amin(1) + 1, x)
    assert best.node == "amax", "of many steps"


INPUT = torch.linspace(0.1, 1.0, 12)


def typed(dtype: str) -> tuple[TensorType, ...]:
    return (TensorType(dtype, "cpu", ("12",), ()),)


def cast(name: str, read: str, dtype: str) -> Node:
    target, number = "prims.convert_element_type.default", {"dtype": dtype}
    return Node(name, NodeKind.CALL, target, ({"node": read}, number), types=typed(dtype))


def found(*middle: Node) -> Rounding | None:
    """Of x in float16, with more nodes, back in float32 as `back`."""
    nodes = (Node("x", NodeKind.INPUT, types=typed("float32")), cast("half", "x", "float16"), *middle)
    nodes = (*nodes, cast("back", nodes[-1].name, "float32"))
    graph = Graph("", MODEL, nodes, ())
    reference = Reference(FORMAT, "2.13", (graph,))
    names = tuple(node.name for node in nodes[1:])
    region = Region(
        launch="0.0",
        launches=("0.0",),
        graph="",
        function=MODEL,
        nodes=names,
        inputs=(),
        outputs=(KnownValue(ValueKey("back"), Recorded("0.0", "b", "")),),
    )

    def back(arithmetic: Arithmetic, adjust: Adjustment | None = None) -> torch.Tensor:
        evaluation = Evaluation(reference, graph, arithmetic, "cpu", adjust=adjust)
        evaluation.set(ValueKey("x"), INPUT)
        for name in names:
            evaluation.run(graph.by_name[name])
        value: torch.Tensor = evaluation.value(ValueKey("back"))
        return value

    exact, eager = back(Arithmetic.DOUBLE), back(Arithmetic.EAGER)
    return decisive_rounding(graph, region, exact, eager, lambda adjust: back(Arithmetic.DOUBLE, adjust))


def plus(number: float) -> Node:
    return Node("add", NodeKind.CALL, "aten.add.Tensor", ({"node": "half"}, number), types=typed("float16"))


def test_a_cast_alone() -> None:
    rounding = found()
    assert rounding is not None
    assert rounding.node == "half"
    assert rounding.share > 0.999


def test_a_sum_that_is_rounded_more_than_the_cast_before_it() -> None:
    rounding = found(plus(2048.0))
    assert rounding is not None
    assert rounding.node == "add"
    assert rounding.share > 0.99


def test_roundings_that_make_about_as_much_of_it() -> None:
    nodes = [plus(1.0)]
    for number in range(8):
        name, read = f"mul_{number}", nodes[-1].name
        nodes.append(Node(name, NodeKind.CALL, "aten.mul.Tensor", ({"node": read}, 1.03), types=typed("float16")))
    assert found(*nodes) is None
