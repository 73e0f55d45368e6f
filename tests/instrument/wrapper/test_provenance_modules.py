from __future__ import annotations

from aoti_debug.instrument.wrapper.provenance import with_modules
from aoti_debug.package.manifest import Certainty, Provenance, Role, Site
from aoti_debug.package.program_graphs import FORMAT, BufferValue, Graph, Node, NodeKind, Reference
from tests.factories import arg, site


def call(name: str, module: str) -> Node:
    return Node(name, NodeKind.CALL, "aten.add.Tensor", module=module)


MODEL = Graph(
    "",
    "run_impl",
    (call("embedding", "embedding"), call("add", "encoder.0"), call("mul", "encoder.0"), call("mean", "")),
    (BufferValue("buf3", "mul"),),
)
BRANCH = Graph("true_graph_0", "run_impl", (call("add", "head"),), ())


def modules(*nodes: str, written: str = "buf9", subgraph: str = "") -> tuple[str, ...]:
    provenance = Provenance(Certainty.EXACT, post_grad_nodes=nodes)
    found: Site = site("k", arg("x"), arg(written, Role.OUT), provenance=provenance, subgraph=subgraph)
    (result,) = with_modules((found,), Reference(FORMAT, "2.13", (MODEL, BRANCH)))
    return result.provenance.modules


def test_the_modules_of_all_fused_nodes_in_the_order_of_execution() -> None:
    assert modules("mean", "mul", "add", "embedding", "gone") == ("embedding", "encoder.0")


def test_the_module_of_what_is_written_where_no_node_is_recorded() -> None:
    assert modules(written="buf3") == ("encoder.0",)
    assert modules(written="buf4") == ()


def test_a_branch_has_a_graph_of_its_own() -> None:
    assert modules("add", subgraph="true_graph_0") == ("head",)
    assert modules("add", subgraph="false_graph_0") == ()
