"""The graphs of an exported program, as they are recorded before it is lowered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.instrument.frontend.worker.graph_nodes import node_data, note_lowered
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs, record_graphs
from aoti_debug.package import program_graphs
from aoti_debug.package.program_graphs import EXPORTED, Graph, NodeKind, Reference


class Stateful(nn.Module):
    """A buffer that is overwritten, a branch, and an output that is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        self.count.add_(1)
        chosen = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        return self.linear(chosen), self.count * 2, 3


def exported() -> Any:
    with torch.no_grad():
        return torch.export.export(Stateful().eval(), (torch.ones(2, 4),))


def recorded(exported_program: Any) -> Reference:
    graphs = ReferenceGraphs()
    graphs.record_exported(exported_program)
    found = program_graphs.from_json(program_graphs.to_json(graphs.reference())).of_exported
    assert found is not None
    return found


def nodes(graph: Graph, kind: NodeKind) -> list[str]:
    return [node.target or node.name for node in graph.nodes if node.kind is kind]


def test_weights_and_inputs_are_told_apart() -> None:
    whole = recorded(exported()).graphs[0]
    assert nodes(whole, NodeKind.WEIGHT) == ["linear.weight", "linear.bias", "count"]
    assert nodes(whole, NodeKind.INPUT) == ["x"]
    assert (whole.name, whole.function) == ("", EXPORTED)


class Packed(nn.Module):
    """Few elements that torch does not give as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("few", torch.ones(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.few.view(torch.uint8)


def test_a_small_weight_without_numbers_has_none() -> None:
    with torch.no_grad():
        found = recorded(torch.export.export(Packed(), (torch.ones(2),)))
    assert [node.initial for node in found.graphs[0].nodes if node.kind is NodeKind.WEIGHT] == [None]


def test_small_weights_that_stay_have_their_elements() -> None:
    found = exported()
    initial = {node.target: node.initial for node in recorded(found).graphs[0].nodes if node.kind is NodeKind.WEIGHT}
    bias = tuple(found.state_dict["linear.bias"].tolist())
    assert initial == {"linear.weight": None, "linear.bias": bias, "count": None}


def test_what_is_overwritten_in_place() -> None:
    whole = recorded(exported()).graphs[0]
    (add,) = (node for node in whole.nodes if node.target == "aten.add_.Tensor")
    assert add.mutates == ("b_count",)
    assert len(whole.nodes[-1].args[0]) == 3
    assert whole.nodes[-1].args[0][2] == 3
    assert whole.nodes[-1].kwargs == {}


def test_what_replaces_a_buffer_is_not_for_the_user() -> None:
    whole = recorded(exported().run_decompositions()).graphs[0]
    assert len(whole.nodes[-1].args[0]) == 3
    assert list(whole.nodes[-1].kwargs) == ["count"]


@pytest.mark.parametrize(("is_training", "overwritten"), [(True, ("b_running_mean", "b_running_var")), (False, ())])
def test_running_means_are_overwritten_in_training(is_training: bool, overwritten: tuple[str, ...]) -> None:
    module = nn.BatchNorm1d(4).train(is_training)
    whole = recorded(torch.export.export(module, (torch.randn(2, 4),))).graphs[0]
    (norm,) = (node for node in whole.nodes if "batch_norm" in node.target)
    assert norm.mutates == overwritten


def test_branches_are_graphs_too() -> None:
    reference = recorded(exported())
    assert {graph.name for graph in reference.graphs} == {"", "true_graph_0", "false_graph_0"}
    assert nodes(reference.graphs[0], NodeKind.SUBGRAPH) == ["true_graph_0", "false_graph_0"]


def test_a_program_of_another_torch_does_not_end_the_build() -> None:
    with record_graphs(SimpleNamespace()) as graphs:
        pass
    reference = graphs.reference()
    assert reference.exported == ()
    assert reference.exported_failure.startswith("AttributeError: ")
    assert reference.of_exported is None


def test_a_lowering_of_another_dtype_is_noted_at_its_node() -> None:
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = torch.empty(2, dtype=torch.uint8)

    def lowered_to(dtype: torch.dtype) -> str:
        note_lowered(node, SimpleNamespace(get_dtype=lambda: dtype))
        return node_data(node, lambda _: -1).lowered

    assert lowered_to(torch.uint8) == ""
    note_lowered(node, None)  # of a result without a dtype nothing is known
    assert lowered_to(torch.bool) == "bool"
