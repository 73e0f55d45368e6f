"""Weights that a launch was not passed, from the exported program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.compare.evaluate.arguments import ExportedWeights
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.regions.finder import NotClosedError, slice_to
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from tests.compare.anonymous_memory import growth

FLOATS = (TensorType("float32", "cpu", ("4",), ("1",)),)
SCALE = Node("scale", NodeKind.WEIGHT, "scale", types=FLOATS)
STATE = Node("state", NodeKind.WEIGHT, "state", types=FLOATS)
X = Node("x", NodeKind.INPUT, types=FLOATS)
GRAPH = Graph(
    "",
    MODEL,
    (
        SCALE,
        STATE,
        X,
        Node("mul", NodeKind.CALL, "aten.mul.Tensor", ({"node": "x"}, {"node": "scale"}), types=FLOATS),
        Node("add", NodeKind.CALL, "aten.add.Tensor", ({"node": "x"}, {"node": "state"}), types=FLOATS),
        Node("copy", NodeKind.CALL, "aten.copy_.default", ({"node": "state"}, {"node": "x"}), mutates=("state",)),
    ),
    (),
)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.arange(4.0))
        self.register_buffer("state", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.state


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> ExportedWeights:
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    torch.export.save(torch.export.export(Scaled(), (torch.randn(4),)), path)
    return ExportedWeights(path)


def evaluation(weights: ExportedWeights | None) -> Evaluation:
    reference = Reference(FORMAT, "2.13", (GRAPH,))
    return Evaluation(reference, GRAPH, Arithmetic.DOUBLE, "cpu", weights=weights)


def test_a_weight(weights: ExportedWeights) -> None:
    evaluated = evaluation(weights)
    evaluated.run(SCALE)
    assert torch.equal(evaluated.value(ValueKey("scale")), torch.arange(4.0).double())


def test_a_weight_of_another_type(weights: ExportedWeights) -> None:
    half = (TensorType("bfloat16", "cpu", ("4",), ("1",)),)
    assert weights.value(Node("scale", NodeKind.WEIGHT, "scale", types=half)) is None
    assert weights.value(Node("other", NodeKind.WEIGHT, "other", types=FLOATS)) is None


def test_weights_that_are_not_known(weights: ExportedWeights) -> None:
    for node, source in ((STATE, weights), (SCALE, None), (SCALE, ExportedWeights(None))):  # a state has changed
        evaluated = evaluation(source)
        evaluated.run(node)
        with pytest.raises(
            NotEvaluableError,
            match=f"it depends on the weight {node.name}, whose values are not known",
        ):
            evaluated.value(ValueKey(node.name))


def test_a_region_may_end_in_weights() -> None:
    known = {ValueKey("x")}
    with pytest.raises(NotClosedError):
        slice_to(GRAPH, ValueKey("mul"), known, Symbols())
    nodes, used = slice_to(GRAPH, ValueKey("mul"), known, Symbols(), takes_weights=True)
    assert (set(nodes), used) == ({"mul", "scale"}, (ValueKey("x"),))
    with pytest.raises(NotClosedError):
        slice_to(GRAPH, ValueKey("add"), known, Symbols(), takes_weights=True)


def test_a_region_may_end_in_an_input_that_no_launch_reads() -> None:
    with pytest.raises(NotClosedError, match="it depends on the input x, whose values are not known"):
        slice_to(GRAPH, ValueKey("mul"), {ValueKey("scale")}, Symbols())
    nodes, used = slice_to(GRAPH, ValueKey("mul"), {ValueKey("scale")}, Symbols(), takes_weights=True)
    assert (set(nodes), used) == ({"mul", "x"}, (ValueKey("scale"),))
    body = replace(GRAPH, name="body")  # what it is passed is no input of the model
    with pytest.raises(NotClosedError):
        slice_to(body, ValueKey("mul"), {ValueKey("scale")}, Symbols(), takes_weights=True)


def test_an_input_that_no_launch_reads() -> None:
    x = torch.arange(4.0)
    evaluated = evaluation(ExportedWeights(None, lambda: [x]))
    evaluated.run(X)
    assert torch.equal(evaluated.value(ValueKey("x")), x.double())
    for leaves in ([], [x, x], [x.half()], [torch.zeros(5)], [3]):
        unknown = evaluation(ExportedWeights(None, lambda given=leaves: given))  # type: ignore[misc]
        unknown.run(X)
        with pytest.raises(NotEvaluableError, match="it depends on the input x, whose values are not known"):
            unknown.value(ValueKey("x"))


def test_what_is_overwritten_stays_as_it_is_in_the_archive(weights: ExportedWeights) -> None:
    value = weights.value(SCALE)
    assert value is not None
    value.add_(1)
    again = weights.value(SCALE)
    assert again is not None
    assert torch.equal(again, torch.arange(4.0))


def test_weights_take_no_memory(tmp_path: Path) -> None:
    module, path = nn.Linear(4096, 4096), tmp_path / "model.pt2"  # 64 MiB
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), (torch.randn(1, 4096),)), path)
    node = Node("w", NodeKind.WEIGHT, "weight", types=(TensorType("float32", "cpu", ("4096", "4096"), ()),))
    with torch.no_grad(), growth() as grown:
        value = ExportedWeights(path).value(node)
        assert value is not None
        total = value.sum()
    assert grown.bytes < 32 << 20
    assert torch.equal(total, module.weight.sum())


def test_a_program_that_cannot_be_loaded_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def load(path: str) -> None:
        tries.append(path)
        raise KeyError("no operator lost::op")

    monkeypatch.setattr(torch.export, "load", load)
    weights = ExportedWeights(Path("model.pt2"))
    for _ in range(2):
        evaluated = evaluation(weights)
        evaluated.run(SCALE)
        with pytest.raises(NotEvaluableError, match=r"are not known; model\.pt2 cannot be loaded: .*lost::op"):
            evaluated.value(ValueKey("scale"))
    assert tries == ["model.pt2"]


def test_an_input_without_elements_is_never_read() -> None:
    none = Node("none", NodeKind.INPUT, types=(TensorType("float32", "cpu", ("0", "3"), ("3", "1")),))
    total = Node("total", NodeKind.CALL, "aten.sum.dim_IntList", ({"node": "none"}, [0]))
    graph = Graph("", MODEL, (none, total), ())
    nodes, stops = slice_to(graph, ValueKey("total"), set(), Symbols())
    assert (set(nodes), stops) == ({"none", "total"}, ())
    evaluated = Evaluation(Reference(FORMAT, "2.13", (graph,)), graph, Arithmetic.EAGER, "cpu")
    for node in (none, total):
        evaluated.run(node)
    assert torch.equal(evaluated.value(ValueKey("total")), torch.zeros(3))
