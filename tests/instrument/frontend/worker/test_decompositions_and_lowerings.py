"""What is applied to a program that is lowered, and operators that are called as they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._inductor.compiler_bisector import CompilerBisector
from torch._inductor.decomposition import decompositions
from torch._inductor.virtualized import V
from torch._ops import OpOverload

from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol.inductor_parts import Applied, LeftOut
from aoti_debug.instrument.frontend.worker.decompositions_and_lowerings import leaving_out

RELU, SILU = torch.ops.aten.relu.default, torch.ops.aten.silu.default


def is_left_out(operator: OpOverload, *arguments: float) -> bool:
    """What Inductor is told when it is about to lower a call of an operator with a tensor and numbers."""
    graph = torch.fx.Graph()
    node = graph.call_function(operator, (graph.placeholder("x"), *arguments))
    with V.set_graph_handler(SimpleNamespace(current_node=node)):
        return bool(CompilerBisector.disable_subsystem("inductor", "lowerings", lambda: node.name))


def test_what_is_applied_is_written_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "applied.json"
    with leaving_out(LeftOut(lowerings=("aten.relu.default",), log=str(log))):
        for name in ("first", "second", "first"):
            assert not CompilerBisector.disable_subsystem("inductor", "joint_graph_passes", lambda name=name: name)
        decompositions[SILU](torch.ones(2))
        assert is_left_out(RELU)
        assert not is_left_out(torch.ops.aten.add.Tensor)
    applied = json_data.parse(Applied, log.read_bytes())
    assert applied == Applied(("first", "second"), ("aten.silu.default",), ("aten.relu.default", "aten.add.Tensor"))
    assert not is_left_out(RELU)


def test_a_decomposition_is_left_out() -> None:
    original = decompositions[SILU]
    with leaving_out(LeftOut(decompositions=("aten.silu.default",))):
        assert SILU not in decompositions
    assert decompositions[SILU] is original


@pytest.mark.parametrize(
    ("operator", "numbers"),
    [
        (torch.ops.aten.addmm.default, ()),  # beta and alpha, without a C shim
        (torch.ops.aten.div.Tensor, (10,)),  # a number in place of a tensor
    ],
)
def test_operators_that_cannot_be_called_as_they_are_are_lowered(
    tmp_path: Path, operator: OpOverload, numbers: tuple[float, ...]
) -> None:
    log = tmp_path / "applied.json"
    with leaving_out(LeftOut(lowerings=(str(operator),), log=str(log))):
        assert not is_left_out(operator, *numbers)
    assert json_data.parse(Applied, log.read_bytes()).lowerings == ()
