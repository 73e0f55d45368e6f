"""The weights that a run began with, against those of its program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.evaluate.weights import ExportedWeights
from aoti_debug.compare.protocol.measurement import Advance, StateChange, StatesFailure
from aoti_debug.compare.protocol.request import RecordedWeight
from aoti_debug.compare.text import state_text
from aoti_debug.compare.worker import began
from aoti_debug.compare.worker.began import other_weights
from aoti_debug.package.reference.program import EXPORTED, Graph, Node, NodeKind, TensorType
from aoti_debug.runs.rundir.write_tensor import write_tensor

RIGHT = torch.arange(12.0).reshape(3, 4) + 1
KIND = TensorType("float32", "cpu", ("3", "4"), ("4", "1"))
NODE = Node("p_w", NodeKind.WEIGHT, "w", types=(KIND,))


class Program(ExportedWeights):
    """A program of one weight."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__(None)
        self._value = value

    def value(self, node: Node) -> torch.Tensor | None:
        return self._value if node.target == "w" else None


def found(
    folder: Path, actual: torch.Tensor, is_view: bool = False, right: torch.Tensor = RIGHT
) -> list[StateChange | StatesFailure]:
    write_tensor(folder / "w.safetensors", "w", actual)
    recorded = RecordedWeight("w", str(folder / "w.safetensors"), is_view)
    dtype = str(right.dtype).removeprefix("torch.")
    node = replace(NODE, types=(replace(KIND, dtype=dtype),))
    graph = Graph("", EXPORTED, (node,), ())
    return list(other_weights(graph, (recorded, RecordedWeight("other", "")), Program(right)))


def changes(results: list[StateChange | StatesFailure]) -> list[StateChange]:
    return [result for result in results if isinstance(result, StateChange)]


@pytest.mark.parametrize("is_view", [False, True])
def test_the_same_weight(tmp_path: Path, is_view: bool) -> None:
    assert found(tmp_path, RIGHT.clone(), is_view) == []


def test_one_element_is_another_one(tmp_path: Path) -> None:
    wrong = RIGHT.clone()
    wrong[2, 3] += 0.5
    (change,) = changes(found(tmp_path, wrong))
    assert (change.name, change.advance, change.difference) == ("w", Advance.OTHER_BEGIN, 0.5)
    assert state_text(change) == "w is not what the program begins with: it is 0.5 off"


def test_nan_counts_as_nan(tmp_path: Path) -> None:
    nan = RIGHT.clone()
    nan[0, 0] = torch.nan
    assert found(tmp_path, nan, right=nan.clone()) == []
    (change,) = changes(found(tmp_path, nan))
    assert change.misplaced == 1


def test_a_view_in_another_order(tmp_path: Path) -> None:
    assert found(tmp_path, RIGHT.clone().t(), is_view=True) == []
    assert found(tmp_path, RIGHT.t().contiguous(), is_view=True) == []
    (change,) = changes(found(tmp_path, (RIGHT + 1).t(), is_view=True))
    assert state_text(change) == "w is not what the program begins with"


def test_a_weight_that_is_gone_or_of_another_type_is_not_compared(tmp_path: Path) -> None:
    assert found(tmp_path, RIGHT.double()) == []
    gone = RecordedWeight("w", str(tmp_path / "gone.safetensors"))
    assert list(other_weights(Graph("", EXPORTED, (NODE,), ()), (gone,), Program(RIGHT))) == []


DTYPES = [
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.bfloat16,
    torch.int64,
    torch.bool,
]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_view", [False, True])
def test_every_dtype(tmp_path: Path, dtype: torch.dtype, is_view: bool) -> None:
    right = (RIGHT - 1).to(dtype)
    other = RIGHT.clone()
    other[0, 0] = 9
    assert found(tmp_path, right.clone(), is_view, right) == []
    if not is_view or dtype is not torch.complex128:  # which is too large to be sorted
        assert len(changes(found(tmp_path, other.to(dtype), is_view, right))) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex32, torch.complex128])
def test_signs_of_zero_do_not_count(tmp_path: Path, dtype: torch.dtype) -> None:
    right = (RIGHT - 1).to(dtype)
    negative = right.clone()
    negative[0, 0] = -0.0
    assert found(tmp_path, negative, right=right) == []


def test_a_weight_that_torch_cannot_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise NotImplementedError('"equal_cpu" not implemented')

    monkeypatch.setattr(began, "has_equal_bits", fail)
    (failure,) = found(tmp_path, RIGHT)
    reason = 'whether w is what the program begins with is not known: "equal_cpu" not implemented'
    assert failure == StatesFailure(reason)
