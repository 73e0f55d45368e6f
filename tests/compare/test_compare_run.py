"""What was not compared with eager, and the operators that overwrite states which a run changes otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.compare import compare_run
from aoti_debug.compare.compare_run import Scope
from aoti_debug.compare.evaluation_process import EvaluatedRun
from aoti_debug.compare.protocol.measurement import Advance, ExportedOutputs, StateChange
from aoti_debug.compare.suspects import overwrites_states, overwriting
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.program_graphs import EXPORTED, FORMAT, Graph, Node, NodeKind, Reference, TensorType
from aoti_debug.runs.run import saved_outputs
from aoti_debug.runs.rundir.run_json import EMBEDDED
from tests.triage.recorder import Recorder

KIND = TensorType("float32", "cpu", ("4",), ("1",))
LINE = ModelLine("model.py", 7, "forward", "self.count.add_(1)")


def test_an_output_that_cannot_be_saved_is_not_compared(tmp_path: Path) -> None:
    saved_outputs.save((torch.ones(2), torch.ones(2).to_sparse()), tmp_path)
    evaluated = EvaluatedRun()
    evaluated.exported_outputs = ExportedOutputs(eager=str(tmp_path))
    said = compare_run._outputs_missing(tmp_path, evaluated)
    assert said == "output 1 (a tensor of float32, torch.sparse_coo, cannot be saved)"


def call(name: str, target: str, read: str, *, overwrites: bool = False) -> Node:
    mutates = (read,) if overwrites else ()
    return Node(name, NodeKind.CALL, target, ({"node": read},), types=(KIND,), line=0, mutates=mutates)


def exported() -> Reference:
    """A program that overwrites a view of `count`, replaces `mean`, and leaves `scale` as it is."""
    weights = [Node(f"b_{name}", NodeKind.WEIGHT, name, types=(KIND,)) for name in ("count", "mean", "scale")]
    nodes = (
        *weights,
        call("view", "aten.view.default", "b_count"),
        call("add_", "aten.add_.Tensor", "view", overwrites=True),
        call("mul", "aten.mul.Tensor", "b_mean"),
        Node("output", NodeKind.OUTPUT, "output", ([{"node": "add_"}],), {"mean": {"node": "mul"}}),
    )
    return Reference(FORMAT, "2.13.0", (), (LINE,), exported=(Graph("", EXPORTED, nodes, ()),))


def seen(name: str, *advances: Advance) -> list[str]:
    states = [StateChange(name=name, call=at, launch="0.1", advance=advance) for at, advance in enumerate(advances)]
    found = list(overwriting(states, exported()))
    assert all(one.state == name for one in found)
    return [one.text for one in found]


def test_the_operator_that_overwrites_or_replaces_a_state_is_named() -> None:
    overwrites = ["aten.add_.Tensor (add_) at model.py:7 overwrites count"]
    assert seen("count", Advance.OTHERWISE, Advance.TWICE) == overwrites
    assert seen("count", Advance.UNTOUCHED) == overwrites
    assert seen("mean", Advance.NOT_AT_ALL) == ["aten.mul.Tensor (mul) at model.py:7 computes what replaces mean"]


def test_no_operator_is_named_where_none_is_known() -> None:
    assert seen("scale", Advance.OTHERWISE) == []
    assert seen("count", Advance.OTHER_BEGIN, Advance.RIGHT) == []
    states = [StateChange(name="count", call=0, launch="", advance=Advance.UNTOUCHED)]
    assert list(overwriting(states, Reference(FORMAT, "2.13.0", ()))) == []


def test_states_are_not_compared_where_only_the_exported_program_is_known() -> None:
    program = exported()
    alone = Reference(FORMAT, "2.13.0", (), exported=program.exported, failure="other kernels")
    assert compare_run._unfollowed_states(alone) == "other kernels"
    (graph,) = program.exported
    kept = [node for node in graph.nodes if not node.mutates]
    without = Graph("", EXPORTED, (*kept[:-1], Node("output", NodeKind.OUTPUT, "output", ([{"node": "mul"}],))), ())
    assert compare_run._unfollowed_states(Reference(FORMAT, "2.13.0", (), exported=(without,), failure="other")) == ""
    of_temporary = Node("mul_", NodeKind.CALL, "aten.mul_.Tensor", ({"node": "mul"},), types=(KIND,), mutates=("mul",))
    assert not overwrites_states(Graph("", EXPORTED, (*without.nodes[:-1], of_temporary, without.nodes[-1]), ()))


@pytest.mark.parametrize("host", ["", EMBEDDED])
def test_the_process_that_evaluates_is_told_of_a_run_of_another_program(tmp_path: Path, host: str) -> None:
    recorded = Recorder(tmp_path).run()
    run = recorded.with_info(replace(recorded.info, host=host))
    request = compare_run.request_for(run, tmp_path / "p.pt2", Scope(), ())
    assert request.is_of_host is (host == EMBEDDED)
