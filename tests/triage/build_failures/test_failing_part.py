"""The part of a graph that a repro of a build compiles."""

from __future__ import annotations

import pytest

from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind, TensorType
from aoti_debug.triage.build_failures import proof_script
from tests.compare.chains import KIND
from tests.triage.build_failures import failures

GRAPH = failures.REFERENCE.graphs[0]


def call(name: str, *sources: str, types: tuple[TensorType | None, ...] = (KIND,)) -> Node:
    return Node(name, NodeKind.CALL, f"aten.{name}.default", tuple({"node": s} for s in sources), types=types)


def test_one_node_begins_with_what_it_reads() -> None:
    region = proof_script.region_of(GRAPH, ["node_1"])
    assert (region.nodes, [item.value.node for item in region.inputs]) == (("node_1",), ["node_0"])


def test_all_calls_begin_with_the_inputs() -> None:
    region = proof_script.region_of(GRAPH, proof_script.calls_of(GRAPH))
    assert (region.nodes, [item.value.node for item in region.inputs]) == (("node_0", "node_1"), ["x"])
    assert proof_script.device_of(GRAPH, region) == "cpu"


def test_what_torch_folds_and_what_is_no_single_tensor_belong_to_the_part() -> None:
    nodes = (
        Node("x", NodeKind.INPUT, types=(KIND,)),
        Node("weight", NodeKind.WEIGHT, "weight", types=(KIND,)),
        call("permute", "weight"),
        call("split", "x", types=(KIND, KIND)),
        call("mm", "split", "permute"),
    )
    region = proof_script.region_of(Graph("", MODEL, nodes, ()), ["mm"])
    assert region.nodes == ("permute", "split", "mm")
    assert [item.value.node for item in region.inputs] == ["x", "weight"]


def test_symbolic_sizes_get_a_size() -> None:
    dynamic = TensorType("float32", "cpu", ("s77", "2*s77"), ("2*s77", "1"))
    graph = Graph("", MODEL, (Node("x", NodeKind.INPUT, types=(dynamic,)), call("relu", "x")), ())
    region = proof_script.region_of(graph, ["relu"])
    assert region.symbols == {"s77": proof_script.SIZE}
    tensor = proof_script.input_of(graph, "x", region.symbols)
    assert (tensor.shape, tensor.strides) == ((8, 16), (16, 1))
    with pytest.raises(LookupError, match="the size s77 is not known"):
        proof_script.input_of(graph, "x", {})
