"""The names of what the bodies of branches and loops take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aoti_debug.compare.locate_operator import model_input, names_in
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference
from tests import factories

MANIFEST = replace(factories.make_manifest(), inputs=("arg0_1", "arg1_1"), input_names=("x", "index"))


def node(name: str) -> dict[str, str]:
    return {"node": name}


def graph(name: str, inputs: tuple[str, ...], *calls: Node, returned: tuple[str, ...] = ()) -> Graph:
    given = tuple(Node(item, NodeKind.INPUT) for item in inputs)
    output = Node("output", NodeKind.OUTPUT, args=([node(item) for item in returned],))
    return Graph(name, MODEL, (*given, *calls, output), ())


def whole(target: str, *args: Any) -> Graph:
    table = Node("table", NodeKind.WEIGHT, "embed.table")
    bodies = tuple(Node(name, NodeKind.SUBGRAPH, name) for name in ("first_graph_0", "second_graph_0"))
    start = Node("full", NodeKind.CALL, "aten.full.default")
    call = Node("call", NodeKind.CALL, target, args)
    return graph("", ("arg0_1", "arg1_1"), table, *bodies, start, call, returned=("call",))


BODY = graph("second_graph_0", ("a", "b", "c", "d"), returned=("e", "b"))


def names(outer: Graph, loops: tuple[int, ...]) -> dict[str, str]:
    reference = Reference(FORMAT, "2.13", (outer, BODY))
    return dict(names_in(MANIFEST, reference, BODY, loops))


def test_the_operands_of_a_branch() -> None:
    operands = [node("arg1_1"), node("table"), node("full"), 3]
    outer = whole("higher_order.cond", node("full"), node("first_graph_0"), node("second_graph_0"), operands)
    assert names(outer, ()) == {"a": "index", "b": "embed.table"}


def test_what_a_loop_carries_is_the_input_until_the_body_changes_it() -> None:
    carried, others = [node("arg1_1"), node("arg0_1")], [node("table"), node("full")]
    outer = whole("higher_order.while_loop", node("first_graph_0"), node("second_graph_0"), carried, others)
    assert names(outer, (0,)) == {"a": "index", "b": "x", "c": "embed.table"}
    assert names(outer, (7,)) == {"b": "x", "c": "embed.table"}


def test_the_inputs_and_weights_of_the_model() -> None:
    outer = whole("higher_order.cond")
    reference = Reference(FORMAT, "2.13", (outer,))
    of = {item.name: model_input(MANIFEST, reference, outer, item, ()) for item in outer.nodes}
    assert {name: value for name, value in of.items() if value} == {
        "arg0_1": "x",
        "arg1_1": "index",
        "table": "embed.table",
    }
