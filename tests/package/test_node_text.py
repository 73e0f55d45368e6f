from __future__ import annotations

from aoti_debug.package.node_text import PlacedNode, node_text, other_nodes_text, place_in_subgraph
from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind

NODE = Node(
    "index",
    NodeKind.CALL,
    "aten.index.Tensor",
    ({"node": "table"}, [None, {"node": "add"}], 2, "sum", {"float": "inf"}, {"slice": [None, 4, 1]}),
    {"dtype": {"dtype": "int64"}, "out": {"dict": {"x": {"node": "mul"}}}},
)


def test_a_call() -> None:
    assert node_text(NODE) == (
        "index = aten.index.Tensor(table, [None, add], 2, 'sum', inf, [None, 4, 1], dtype=int64, out={x: mul})"
    )


def placed(target: str, *args: object, line: str = "") -> PlacedNode:
    return PlacedNode(Node("n", NodeKind.CALL, target, args), line)


def test_the_operators_of_one_graph_alone_are_named_with_their_lines() -> None:
    relu, x, y = placed("aten.relu.default", {"node": "x"}), {"node": "x"}, {"node": "y"}
    first = [relu, placed("aten.mul.Tensor", x, 2.0, line="a.py:7"), relu]
    second = [relu, placed("aten.mul.Tensor", y, 3.0, line="b.py:9"), placed("aten.neg.default", x)]
    assert other_nodes_text(first, second) == (
        "of the operators there, only in a: aten.relu.default(…), aten.mul.Tensor(…, 2.0) (a.py:7); "
        "only in b: aten.mul.Tensor(…, 3.0) (b.py:9), aten.neg.default(…)"
    )
    assert other_nodes_text(first[:2], first[:1]) == (
        "of the operators there, only in a: aten.mul.Tensor(…, 2.0) (a.py:7)"
    )


def test_operators_that_are_equal_or_not_known() -> None:
    one = [placed("aten.sub.Tensor", {"node": "x"}, {"node": "y"})]
    other = [placed("aten.sub.Tensor", {"node": "y"}, {"node": "x"})]
    assert other_nodes_text(one, other).startswith("the operators there are the same, with the same numbers: ")
    assert other_nodes_text([], one).startswith("of the operators there, only in b: ")
    assert other_nodes_text([], []) == "the graphs do not tell which operator differs"


def test_only_a_body_is_named() -> None:
    body, whole = Graph("while_loop_body_graph_0", MODEL, (NODE,), ()), Graph("", MODEL, (NODE,), ())
    assert place_in_subgraph(body, NODE, (7,)).startswith("in iteration 7 of while_loop_body_graph_0: index = aten.")
    assert place_in_subgraph(body, NODE, ()).startswith("in while_loop_body_graph_0: index = aten.")
    assert place_in_subgraph(whole, NODE, ()) == ""
