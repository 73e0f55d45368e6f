from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package import program_graphs
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.program_graphs import (
    FORMAT,
    MODEL,
    BufferValue,
    Graph,
    Node,
    NodeKind,
    Reference,
    TensorType,
    ValueKey,
    operator_name,
)

FLOATS = TensorType("float32", "cpu", ("s77", "4"), ("4", "1"))
GRAPH = Graph(
    "",
    MODEL,
    (
        Node("arg0_1", NodeKind.INPUT, types=(FLOATS,)),
        Node("weight", NodeKind.WEIGHT, "linear.weight", types=(FLOATS,)),
        Node("mul", NodeKind.CALL, "aten.mul.Tensor", ({"node": "arg0_1"}, 2.0), types=(FLOATS,), line=0),
        Node("fill", NodeKind.CALL, "aten.fill_.Scalar", ({"node": "weight"}, {"float": "inf"}), mutates=("weight",)),
        Node("add", NodeKind.CALL, "aten.add.Tensor", ({"node": "mul"}, {"node": "weight"}), {"alpha": 2}),
        Node("cat", NodeKind.CALL, "aten.cat.default", ([{"node": "add"}, {"node": "mul"}], {"slice": [None, 4, 1]})),
        Node("output", NodeKind.OUTPUT, args=([{"node": "cat"}],)),
    ),
    (BufferValue("buf0", "mul"), BufferValue("buf1", "add")),
)
REFERENCE = Reference(FORMAT, "2.13.0", (GRAPH,), (ModelLine("model.py", 3, "forward", "y = x * 2"),))


def test_json_and_back() -> None:
    assert program_graphs.from_json(program_graphs.to_json(REFERENCE)) == REFERENCE


def test_defaults_are_left_out() -> None:
    data = json.loads(program_graphs.to_json(REFERENCE))
    assert data["graphs"][0]["nodes"][0] == {
        "name": "arg0_1",
        "kind": "input",
        "types": [{"dtype": "float32", "device": "cpu", "shape": ["s77", "4"], "strides": ["4", "1"]}],
    }
    assert "failure" not in data


def test_what_a_node_reads() -> None:
    assert GRAPH.by_name["cat"].inputs == ("add", "mul")
    assert GRAPH.by_name["add"].inputs == ("mul", "weight")


def test_a_weight_that_is_overwritten_has_another_value_afterwards() -> None:
    assert GRAPH.value_for("weight", "fill") == ValueKey("weight")
    assert GRAPH.value_for("weight", "add") == ValueKey("weight", "fill")
    assert str(GRAPH.value_for("weight", "add")) == "weight after fill"


def test_lookups() -> None:
    assert GRAPH.held == {"buf0": "mul", "buf1": "add"}
    assert GRAPH.weights == {"linear.weight": "weight"}
    assert GRAPH.sorted(["cat", "mul", "cat"]) == ("mul", "cat")
    assert REFERENCE.graph("", MODEL) is GRAPH or REFERENCE.graph("", MODEL) == GRAPH
    assert REFERENCE.graph("true_graph_0", MODEL) is None
    assert REFERENCE.line(GRAPH.by_name["mul"]) == REFERENCE.lines[0]
    assert REFERENCE.line(GRAPH.by_name["add"]) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the reference is damaged"),
        ('{"format": 99}', "the reference has format 99; this aoti-debug reads format 1"),
        ('{"format": 1, "torch_version": "2.13", "graphs": [3]}', r"graphs\[0\] is 3, not an object"),
    ],
)
def test_damaged_text(text: str, message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        program_graphs.from_json(text)
    assert caught.value.hint


def test_a_graph_of_ten_thousand_nodes() -> None:
    nodes = tuple(
        Node(f"n{i}", NodeKind.CALL, "aten.sin.default", ({"node": f"n{i - 1}"},), types=(FLOATS,))
        for i in range(1, 10_001)
    )
    long = replace(REFERENCE, graphs=(Graph("", MODEL, (Node("n0", NodeKind.INPUT), *nodes), ()),))
    read = program_graphs.from_json(program_graphs.to_json(long))
    assert read.graphs[0].sorted(read.graphs[0].by_name)[-1] == "n10000"


def test_the_name_of_an_operator() -> None:
    assert operator_name("aten.native_layer_norm.default") == "native_layer_norm"
    assert operator_name("aten.addmm") == "addmm"
    assert operator_name("cond") == "cond"
