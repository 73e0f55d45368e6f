"""The weights that a run began with, against those of its program."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.compare.evaluate.weights import ExportedWeights
from aoti_debug.compare.protocol.measurement import Advance, StateChange
from aoti_debug.compare.protocol.request import RecordedWeight
from aoti_debug.compare.text import state_text
from aoti_debug.compare.worker.began import other_weights
from aoti_debug.reference.program import EXPORTED, Graph, Node, NodeKind, TensorType
from aoti_debug.rundir.write_tensor import write_tensor

RIGHT = torch.arange(12.0).reshape(3, 4) + 1
NODE = Node("p_w", NodeKind.WEIGHT, "w", types=(TensorType("float32", "cpu", ("3", "4"), ("4", "1")),))


class Program(ExportedWeights):
    """A program of one weight."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__(None)
        self._value = value

    def value(self, node: Node) -> torch.Tensor | None:
        return self._value if node.target == "w" else None


def found(folder: Path, actual: torch.Tensor, is_view: bool = False, right: torch.Tensor = RIGHT) -> list[StateChange]:
    write_tensor(folder / "w.safetensors", "w", actual)
    recorded = RecordedWeight("w", str(folder / "w.safetensors"), is_view)
    return list(
        other_weights(Graph("", EXPORTED, (NODE,), ()), (recorded, RecordedWeight("other", "")), Program(right))
    )


@pytest.mark.parametrize("is_view", [False, True])
def test_the_same_weight(tmp_path: Path, is_view: bool) -> None:
    assert found(tmp_path, RIGHT.clone(), is_view) == []


def test_one_element_is_another_one(tmp_path: Path) -> None:
    wrong = RIGHT.clone()
    wrong[2, 3] += 0.5
    (change,) = found(tmp_path, wrong)
    assert (change.name, change.advance, change.difference) == ("w", Advance.OTHER_BEGIN, 0.5)
    assert state_text(change) == "w is not what the program begins with: it is 0.5 off"


def test_nan_counts_as_nan(tmp_path: Path) -> None:
    nan = RIGHT.clone()
    nan[0, 0] = torch.nan
    assert found(tmp_path, nan, right=nan.clone()) == []
    (change,) = found(tmp_path, nan)
    assert change.misplaced == 1


def test_a_view_in_another_order(tmp_path: Path) -> None:
    assert found(tmp_path, RIGHT.clone().t(), is_view=True) == []
    assert found(tmp_path, RIGHT.t().contiguous(), is_view=True) == []
    (change,) = found(tmp_path, (RIGHT + 1).t(), is_view=True)
    assert state_text(change) == "w is not what the program begins with"


def test_a_weight_that_is_gone_or_of_another_type_is_not_compared(tmp_path: Path) -> None:
    assert found(tmp_path, RIGHT.double()) == []
    gone = RecordedWeight("w", str(tmp_path / "gone.safetensors"))
    assert list(other_weights(Graph("", EXPORTED, (NODE,), ()), (gone,), Program(RIGHT))) == []
