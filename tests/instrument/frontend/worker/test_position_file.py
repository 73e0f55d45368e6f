"""The node that torch worked on when it raised an exception; operators that overwrite what a loop is passed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

from aoti_debug.instrument.frontend.protocol import build_failure
from aoti_debug.instrument.frontend.protocol.build_failure import LOWERED_GRAPHS, BuildStage, Position
from aoti_debug.instrument.frontend.worker.position_file import Positions, node_at_work, overwritten_operands, watched
from aoti_debug.package import program_graphs


def graph() -> fx.Graph:
    """x → its sine."""
    made = fx.Graph()
    made.output(made.call_function(torch.ops.aten.sin.default, (made.placeholder("x"),)))
    return made


def visit(graph: fx.Graph) -> None:
    """Refuses the first node that calls a function, as a pass would."""
    for n in graph.nodes:
        if n.op == "call_function":
            raise AssertionError("no such node")


def test_the_innermost_function_with_a_node() -> None:
    with pytest.raises(AssertionError) as raised:
        visit(graph())
    found = node_at_work(raised.value)
    assert found.startswith(f"visit ({__file__}:")
    assert found.endswith("raised it at node sin_default, a call of aten.sin.default")


def test_without_a_node_nothing_is_said() -> None:
    assert node_at_work(None) == ""
    with pytest.raises(ValueError, match="3") as raised:
        int("x3")
    assert node_at_work(raised.value) == ""


@torch.library.custom_op("test_overwritten_operands::bump", mutates_args={"x"})
def bump(x: Tensor, by: Tensor) -> None:
    x.add_(by)


class Loop(nn.Module):
    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.copies = copies

    def forward(self, start: Tensor, by: Tensor) -> Tensor:
        def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            own = x.clone() if self.copies else x
            bump(own, by)
            return i + 1, own * 1.5

        count = torch.zeros((), dtype=torch.int64)
        return torch._higher_order_ops.while_loop(lambda i, _: i < 4, step, (count, start.sin()))[1]


@pytest.mark.parametrize("copies", [False, True])
def test_the_operator_that_overwrites_what_a_loop_carries(copies: bool) -> None:
    try:
        with torch.no_grad():  # otherwise the export itself refuses
            program = torch.export.export(Loop(copies), (torch.randn(8), torch.randn(8)))
    except torch._dynamo.exc.UncapturedHigherOrderOpError as refused:
        if copies or "do not support input mutation" not in str(refused):
            raise
        pytest.skip("this torch exports no loop that overwrites what it carries")
    error = RuntimeError("body_fn might be modifying the input!")
    said = overwritten_operands(program, error)
    if copies:
        assert said == ""
    else:
        assert said.startswith("test_overwritten_operands.bump.default overwrites ")
        assert "which while_loop is passed, in while_loop_body_graph_0 (test_position_file.py:" in said
    assert overwritten_operands(program, RuntimeError("no such layout")) == ""


LOWERING = Position(BuildStage.LOWERING, "aten.mm.default", "mm", "true_graph_0")
CANDIDATE = Position(BuildStage.AUTOTUNING, "cpp_gemm_0")


def at(folder: Path) -> Position | None:
    return build_failure.read_position(folder)


def test_the_innermost_part_is_in_the_file_and_works_for_the_node_around_it(tmp_path: Path) -> None:
    with watched(tmp_path, ()) as positions:
        assert at(tmp_path) is None
        with positions.at(LOWERING):
            assert at(tmp_path) == LOWERING
            with positions.at(CANDIDATE):
                assert at(tmp_path) == Position(BuildStage.AUTOTUNING, "cpp_gemm_0", "mm", "true_graph_0")
            assert at(tmp_path) == LOWERING
        assert at(tmp_path) is None


def raise_in_a_part(positions: Positions) -> None:
    with positions.at(Position(BuildStage.CODE)), positions.at(LOWERING):
        raise RuntimeError("no such layout")


def wrap(positions: Positions) -> None:
    try:
        raise_in_a_part(positions)
    except RuntimeError as error:
        raise ValueError("wrapped") from error


def handle(positions: Positions) -> None:
    with contextlib.suppress(RuntimeError):
        raise_in_a_part(positions)
    raise ValueError("another")


@pytest.mark.parametrize(("fail", "position"), [(wrap, LOWERING), (handle, None)])
def test_an_exception_is_of_the_part_that_it_left_first(
    tmp_path: Path, fail: Callable[[Positions], None], position: Position | None
) -> None:
    with pytest.raises(ValueError, match=r"wrapped|another"), watched(tmp_path, ()) as positions:
        fail(positions)
    assert at(tmp_path) == position


KERNEL = Position(BuildStage.CODE, nodes=("relu", "erf", "sin"))
STEP = Position(BuildStage.CODE, "aten.erf.default", "erf", nodes=("erf",))


@pytest.mark.parametrize(
    ("inner", "seen"),
    [
        (STEP, replace(STEP, nodes=("erf", "relu", "sin"))),
        (replace(KERNEL, nodes=("erf", "sin")), replace(KERNEL, nodes=("erf", "sin", "relu"))),
        (replace(STEP, graph="true_graph_0"), replace(STEP, graph="true_graph_0")),
        (Position(BuildStage.CODE), KERNEL),
        (replace(STEP, node="cos", nodes=("cos",)), replace(STEP, node="cos", nodes=("cos",))),
    ],
)
def test_a_step_knows_the_other_operators_of_its_kernel(tmp_path: Path, inner: Position, seen: Position) -> None:
    with watched(tmp_path, ()) as positions, positions.at(KERNEL), positions.at(inner):
        assert at(tmp_path) == seen


def raise_again(positions: Positions) -> None:
    again = RuntimeError("no such layout")
    with positions.at(KERNEL), contextlib.suppress(RuntimeError), positions.at(STEP):
        raise again
    raise again


def test_a_handled_exception_is_forgotten(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), watched(tmp_path, ()) as positions, positions.at(KERNEL):
        raise_again(positions)
    assert at(tmp_path) == KERNEL


def test_too_many_nodes_are_left_out(tmp_path: Path) -> None:
    many = replace(STEP, nodes=tuple(f"node_{number}" for number in range(50_000)))
    with watched(tmp_path, ()) as positions, positions.at(many):
        assert at(tmp_path) == replace(STEP, nodes=())


def test_a_full_disk_stops_no_lowering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with watched(tmp_path, ()) as positions, positions.at(LOWERING):
        assert at(tmp_path) is None


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_a_lack_of_the_machine_is_of_no_part(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)), watched(tmp_path, ()) as positions, positions.at(LOWERING):
        raise error
    assert at(tmp_path) is None


def test_passes_are_noted_and_torch_stays_as_it_was(tmp_path: Path) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    before = dict(vars(GraphTransformObserver))
    seen = []
    with watched(tmp_path, graph.graph.nodes):
        GraphTransformObserver(graph, "first").apply_graph_pass(lambda _: seen.append(at(tmp_path)))
        with GraphTransformObserver(graph, "second"):
            seen.append(at(tmp_path))
        assert at(tmp_path) is None
    assert seen == [Position(BuildStage.PASS, "first"), Position(BuildStage.PASS, "second")]
    assert dict(vars(GraphTransformObserver)) == before
    (graph_,) = program_graphs.from_json((tmp_path / LOWERED_GRAPHS).read_bytes()).graphs
    assert [node.kind.value for node in graph_.nodes] == ["input", "call", "output"]


def test_patterns_without_a_name_belong_to_the_pass_that_applies_them(tmp_path: Path) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    seen = []
    with watched(tmp_path, ()):
        with GraphTransformObserver(graph, "pass_pattern_1"), GraphTransformObserver(graph, "pattern_matcher"):
            seen.append(at(tmp_path))
        with GraphTransformObserver(graph, "pattern_matcher"):
            seen.append(at(tmp_path))
    assert seen == [Position(BuildStage.PASS, "pass_pattern_1"), Position(BuildStage.PASS, "pattern_matcher")]


def test_nodes_are_noted_while_they_are_lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.graph import GraphLowering

    seen = []
    monkeypatch.setattr(GraphLowering, "run_node", lambda self, node: seen.append((node.name, at(tmp_path))))
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    call = graph.call_function(torch.ops.aten.erf.default, (x,))
    lowered = SimpleNamespace(is_const_graph=False, name=None)
    with watched(tmp_path, ()):
        GraphLowering.run_node(lowered, x)
        GraphLowering.run_node(lowered, call)
    assert seen == [("x", None), ("erf_default", Position(BuildStage.LOWERING, "aten.erf.default", "erf_default"))]


class Refusing(torch.fx.Interpreter):
    """Traces a graph, and refuses its sine."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Refuses it.

        Raises:
            RuntimeError: it is the sine.
        """
        if target is torch.ops.aten.sin.default:
            raise RuntimeError("no sines")
        return super().call_function(target, args, kwargs)


def test_an_exception_of_no_part_is_of_the_call_that_was_traced(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.ops.aten.sin.default, (graph.call_function(torch.neg, (x,)),)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    with pytest.raises(RuntimeError, match="no sines"), watched(tmp_path, ()):
        Refusing(module).run(torch.ones(2))
    assert at(tmp_path) == Position(BuildStage.TRACING, "aten.sin.default", "sin_default")
