"""What a run returned, against what its launches wrote for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.compare.protocol.request import ExportedRun, KnownValue, ProgramOutput, ProgramRun, Recorded
from aoti_debug.compare.worker.recorded_outputs import misreturned
from aoti_debug.reference.program import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from aoti_debug.run import saved_outputs
from aoti_debug.rundir.write_tensor import write_tensor

KIND = TensorType("float32", "cpu", ("2", "3"), ("3", "1"))
TURNED = TensorType("float32", "cpu", ("3", "2"), ("1", "3"))
X = torch.arange(6.0).reshape(2, 3)


def node(name: str, target: str, *args: object, type_: TensorType = KIND) -> Node:
    return Node(name, NodeKind.CALL, target, args, types=(type_,))


GRAPH = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=(KIND,)),
        node("sin", "aten.sin.default", {"node": "x"}),
        node("cos", "aten.cos.default", {"node": "x"}),
        node("turned", "aten.permute.default", {"node": "cos"}, [1, 0], type_=TURNED),
        node("exp", "aten.exp.default", {"node": "x"}),
        Node("output", NodeKind.OUTPUT, "output", ([{"node": "sin"}, {"node": "turned"}, {"node": "exp"}, 3],)),
    ),
    (),
)


def faults(folder: Path, *returned: object) -> list[tuple[int, str]]:
    """What is said where launches wrote the sine and the cosine."""
    written = []
    for buffer, name, value in (("buf0", "sin", X.sin()), ("buf1", "cos", X.cos())):
        write_tensor(folder / f"{buffer}.safetensors", buffer, value)
        recorded = Recorded("0.0", buffer, str(folder / f"{buffer}.safetensors"), ("3", "1"), 6)
        written.append(ProgramOutput("0.0", KnownValue(ValueKey(name), recorded)))
    saved_outputs.save(list(returned), folder / "returned")
    run = ExportedRun(1, str(folder / "returned"), last=ProgramRun("", MODEL, (), ()), written=tuple(written))
    reference = Reference(FORMAT, torch.__version__, (GRAPH,))
    return [(fault.index, fault.fault) for fault in misreturned(reference, run)]


def test_what_was_written_is_returned(tmp_path: Path) -> None:
    assert faults(tmp_path, X.sin(), X.cos().t(), X, 3) == []  # nothing is known of the exponential


def test_outputs_that_are_swapped(tmp_path: Path) -> None:
    said = faults(tmp_path, X.cos(), X.sin().t())
    assert said == [
        (0, "is not what launch 0.0 wrote for it, sin in buf0"),
        (1, "is not what launch 0.0 wrote for it, turned in buf1"),
    ]


def test_another_view(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, X.sin(), X.cos().reshape(3, 2))
    assert fault[0] == 1


@pytest.mark.parametrize("value", [X.sin().double(), X[:1]])
def test_another_kind_is_found_elsewhere(tmp_path: Path, value: torch.Tensor) -> None:
    assert faults(tmp_path, value, X.cos().t()) == []


def test_memory_that_was_overwritten_afterwards(tmp_path: Path) -> None:
    late = X.sin()
    late[1, 2] = torch.nan
    (fault,) = faults(tmp_path, late, X.cos().t())
    assert fault[0] == 0
