"""Starts of minimisations whose values were not computed: no model, no compiler."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.compare.protocol.request import InputTensor, KnownValue, Recorded, Region
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, ValueKey
from aoti_debug.triage.minify.start_parts import END, EagerValue, Start
from tests.compare import chains
from tests.compare.chains import KIND

TENSOR = InputTensor(dtype="float32", shape=(4,), strides=(1,))
PAIR = (KIND, KIND)


def start(*operators: str, missing: tuple[str, ...] = (), random: tuple[str, ...] = ()) -> Start:
    """The start of a chain of operators.

    Args:
        missing: nodes without a value.
        random: nodes that draw random numbers.
    """
    graph = chains.reference(operators)
    nodes = tuple(f"node_{at}" for at in range(len(operators)))
    return of_graph(graph, nodes, missing, random)


def of_graph(
    reference: Reference, nodes: tuple[str, ...], missing: tuple[str, ...] = (), random: tuple[str, ...] = ()
) -> Start:
    region = Region(
        launch="",
        launches=(),
        graph="",
        function=MODEL,
        nodes=nodes,
        inputs=(KnownValue(ValueKey("x"), Recorded("", "", "")),),
        outputs=(),
    )
    lines = [EagerValue("x", file="0.pt", tensor=TENSOR)]
    for name in nodes:
        lines.append(EagerValue(name))
        if name in missing:
            lines.append(EagerValue(name, failure="it fails here"))
        if name in random:
            lines.append(EagerValue(name, is_random=True))
        elif name not in missing:
            lines.append(EagerValue(name, file=f"{name}.pt", tensor=TENSOR))
    return Start("launch 0.3", reference, region, (*lines, END), Path("values"), "cpu")


def of_nodes(*nodes: Node) -> Start:
    """The start of a graph of these nodes after an input x."""
    graph = Graph("", MODEL, (Node("x", NodeKind.INPUT, types=(KIND,)), *nodes), ())
    return of_graph(Reference(FORMAT, "2.13", (graph,)), tuple(node.name for node in nodes))


def call(name: str, target: str, *arguments: object, mutates: tuple[str, ...] = (), types: object = (KIND,)) -> Node:
    """A call; an argument of text is a node."""
    args = tuple({"node": argument} if isinstance(argument, str) else argument for argument in arguments)
    return Node(name, NodeKind.CALL, target, args, types=types, mutates=mutates)  # type: ignore[arg-type]
