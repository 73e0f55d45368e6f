"""States that the graph of the kernels overwrites, where the exported program is not known: float64 judges them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.compare.evaluate import evaluation
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.protocol.measurement import Advance, StateChange, StatesFailure
from aoti_debug.compare.protocol.request import KnownValue, ProgramRun, ProgramState, Recorded
from aoti_debug.compare.worker.lowered_program import evaluate_program
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from aoti_debug.runs.run.saved_outputs import write_tensor

KIND = (TensorType("float32", "cpu", ("4",), ("1",)),)
X = torch.tensor([0.1, 0.2, 0.3, 0.7])
LARGE = 1e4


def call(name: str, target: str, *args: object, mutates: tuple[str, ...] = ()) -> Node:
    members = tuple({"node": a[1:]} if isinstance(a, str) else a for a in args)
    return Node(name, NodeKind.CALL, target, members, types=KIND, mutates=mutates)


# The state is what is left of a sum that cancels: rounding, and nothing but that.
GRAPH = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=KIND),
        Node("state", NodeKind.WEIGHT, "state", types=KIND),
        call("sum", "aten.add.Tensor", "%x", LARGE),
        call("left", "aten.sub.Tensor", "%sum", LARGE),
        call("rest", "aten.sub.Tensor", "%left", "%x"),
        call("copy", "aten.copy_.default", "%state", "%rest", mutates=("state",)),
        Node("output", NodeKind.OUTPUT, "output", ([],)),
    ),
    (),
)


def results(folder: Path, after: torch.Tensor, began: float = 1.0) -> list[object]:
    def recorded(name: str, value: torch.Tensor) -> Recorded:
        write_tensor(folder / f"{name}.safetensors", name, value)
        return Recorded("0.0", name, str(folder / f"{name}.safetensors"), ("1",), 4)

    known = (
        KnownValue(ValueKey("x"), recorded("x", X)),
        KnownValue(ValueKey("state"), recorded("state", begun(began))),
    )
    state = ProgramState(
        name="state",
        node="state",
        mutator="copy",
        before=known[1].recorded,
        after=recorded("after", after),
        launch="0.0",
    )
    run = ProgramRun(graph="", function=MODEL, inputs=known, outputs=(), states=(state,))
    return list(evaluate_program(Reference(FORMAT, torch.__version__, (GRAPH,)), run, "cpu"))


def begun(value: float) -> torch.Tensor:
    return torch.full((4,), value)


def test_rounding_in_another_order_is_no_wrong_state(tmp_path: Path) -> None:
    eager = ((X + LARGE) - LARGE) - X
    assert float(eager.abs().max()) > 1e-5
    (change,) = results(tmp_path, -eager, began=0.0)
    assert isinstance(change, StateChange)
    assert change.advance is Advance.RIGHT


@pytest.mark.parametrize(("value", "advance"), [(3.0, Advance.OTHERWISE), (torch.nan, Advance.OTHERWISE)])
def test_what_is_more_than_rounding_is_wrong(tmp_path: Path, value: float, advance: Advance) -> None:
    (change,) = results(tmp_path, begun(value))
    assert isinstance(change, StateChange)
    assert change.advance is advance


def test_where_float64_is_not_possible_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = evaluation.Evaluation.call

    def only_eager(self: evaluation.Evaluation, *args: object) -> object:
        if self._arithmetic is Arithmetic.DOUBLE:
            raise NotEvaluableError("not in float64")
        return right(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(evaluation.Evaluation, "call", only_eager)
    (failure,) = results(tmp_path, begun(3.0))
    assert failure == StatesFailure("whether rounding explains how state changes is not known: not in float64")
