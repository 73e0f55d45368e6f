from __future__ import annotations

from aoti_debug.package.reference.node_text import node_text, place_in_subgraph
from aoti_debug.package.reference.program import MODEL, Graph, Node, NodeKind

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


def test_only_a_body_is_named() -> None:
    body, whole = Graph("while_loop_body_graph_0", MODEL, (NODE,), ()), Graph("", MODEL, (NODE,), ())
    assert place_in_subgraph(body, NODE, (7,)).startswith("in iteration 7 of while_loop_body_graph_0: index = aten.")
    assert place_in_subgraph(body, NODE, ()).startswith("in while_loop_body_graph_0: index = aten.")
    assert place_in_subgraph(whole, NODE, ()) == ""
