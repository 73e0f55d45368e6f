"""What eager refuses is told from what this machine cannot do, with the element of the input that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.compare.evaluate.weights import ExportedWeights
from aoti_debug.compare.protocol.bad_elements import InputElement, Refusal
from aoti_debug.compare.protocol.measurement import StatesFailure
from aoti_debug.compare.protocol.request import CompareRequest, ExportedRun
from aoti_debug.compare.worker.explain_refusal import is_about_values
from aoti_debug.compare.worker.exported import exported_results
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.reference.program import FORMAT, MODEL, Graph, Node, NodeKind, Reference


class Table(nn.Module):
    """Rows of a table, computed from two inputs and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.tensor([[5], [7]]))

    def forward(self, table: Tensor, x: Tensor, y: Tensor) -> Tensor:
        rows = (x.t().reshape(2, 3) * y + self.offset)[:, 1]
        return torch.index_select(table, 0, rows).sin()


class Branch(nn.Module):
    """An index in the body of a branch."""

    def forward(self, table: Tensor, rows: Tensor) -> Tensor:
        chosen = torch.cond(
            rows.sum() > 0, lambda t, i: t.index_select(0, i), lambda t, i: t.index_select(0, i) + 1, (table, rows)
        )
        return chosen * 2


def yielded(
    module: nn.Module,
    given: tuple[Any, ...],
    bad: tuple[Any, ...],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: Path | None = None,
    calls: int = 1,
) -> list[Any]:
    """What the worker yields for a program that was exported with `given` and is run with `bad`."""
    monkeypatch.setattr(input_files, "read_embedded", lambda _: Inputs(bad, {}))
    graphs = ReferenceGraphs()
    exported = torch.export.export(module, given)
    graphs.record_exported(exported)
    torch.export.save(exported, folder / "model.pt2")
    lowered = Graph("", MODEL, (Node("output", NodeKind.OUTPUT, "output", ([],)),), ())
    reference = Reference(FORMAT, "2.13.0", (lowered,), exported=graphs.reference().exported)
    package: Any = "package.pt2"
    request = CompareRequest(
        package=package, device="cpu", regions=(), exported=str(program or ""), exported_run=ExportedRun(calls=calls)
    )
    weights = ExportedWeights(folder / "model.pt2")
    return list(exported_results(request, package, reference, "cpu", weights, folder))


TABLE = torch.arange(40.0).reshape(10, 4)


def test_the_input_element_of_a_direct_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Add(nn.Module):
        def forward(self, table: Tensor, rows: Tensor, values: Tensor) -> Tensor:
            return table.index_add(0, rows, values)

    values = torch.ones(2, 4)
    given, bad = ((TABLE, torch.tensor(rows), values) for rows in ([0, 1], [3, -1]))
    (refusal,) = yielded(Add(), given, bad, tmp_path, monkeypatch)
    assert isinstance(refusal, Refusal)
    assert refusal.words == "index -1 is out of bounds for dimension 0 with size 10"
    assert refusal.operator == "aten.index_add.default"
    assert refusal.bad is not None
    assert (refusal.bad.name, refusal.bad.index, refusal.bad.value, refusal.bad.size) == ("rows", (1,), -1, 10)
    assert refusal.inputs == (InputElement("rows", (1,), 1, "-1"),)


def test_an_index_is_followed_through_views_and_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.arange(6).reshape(3, 2), torch.tensor([[0, 1, 0], [0, 1, 0]])
    bad = x.clone()
    bad[2, 1] = 9  # [1, 1] of what is reshaped is [1, 2] of the transposed matrix
    bad[1, 1] = 4
    (refusal,) = yielded(Table(), (TABLE, x * 0, y), (TABLE, bad, y), tmp_path, monkeypatch)
    assert isinstance(refusal, Refusal)
    assert refusal.bad is not None
    assert refusal.bad.value == int(bad.t().reshape(2, 3)[1, 1]) + 7 == 11
    assert set(refusal.inputs) == {
        InputElement("x", (1, 1), 3, "4"),
        InputElement("y", (1, 1), 4, "1"),
        InputElement("offset", (1, 0), 1, "7"),
    }


def test_an_index_in_a_branch_is_refused_by_the_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, bad = ((TABLE, torch.tensor(rows)) for rows in ([0, 1], [3, 77]))
    (refusal,) = yielded(Branch(), given, bad, tmp_path, monkeypatch)
    assert isinstance(refusal, Refusal)
    assert "out of range" in refusal.words
    assert (refusal.bad, refusal.inputs) == (None, ())


def test_the_call_in_which_a_state_grows_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("at", torch.tensor([8]))

        def forward(self, table: Tensor) -> Tensor:
            self.at.add_(1)
            return table.index_select(0, self.at)

    (refusal,) = yielded(Grows(), (TABLE,), (TABLE,), tmp_path, monkeypatch, calls=3)
    assert isinstance(refusal, Refusal)
    assert (refusal.call, refusal.operator) == (1, "aten.index_select.default")


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError("Could not run 'aten::x' with arguments from the 'CPU' backend"),
        RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        ImportError("no module named ops"),
        MemoryError(),
        TypeError("add() got an unexpected argument"),
    ],
)
def test_what_this_machine_cannot_do_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert not is_about_values(error)

    def fails(*_: object, **__: object) -> object:
        raise error

    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation.implementation_of", lambda _: fails)
    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation._failures_of", lambda _: (BaseException,))
    given = (TABLE, torch.tensor([0, 1]), torch.ones(2, 4))

    class Add(nn.Module):
        def forward(self, table: Tensor, rows: Tensor, values: Tensor) -> Tensor:
            return table.index_add(0, rows, values)

    (failure,) = yielded(Add(), given, given, tmp_path, monkeypatch)
    assert isinstance(failure, StatesFailure)
    assert failure.reason.startswith("aten.index_add.default fails here")


def test_a_failure_that_the_program_itself_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is called by torch, too, where its file is known."""

    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("sizes do not match")

    class Add(nn.Module):
        def forward(self, table: Tensor) -> Tensor:
            return table + 1

    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation.implementation_of", lambda _: fails)
    program = tmp_path / "model.pt2"
    (failure,) = yielded(Add(), (TABLE,), (TABLE,), tmp_path, monkeypatch, program=program)
    assert isinstance(failure, StatesFailure)
    assert failure.reason.endswith("the program itself, called by torch, does not fail")


def test_the_program_itself_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Select(nn.Module):
        def forward(self, table: Tensor, rows: Tensor) -> Tensor:
            return table.index_select(0, rows) + 1

    given, bad = ((TABLE, torch.tensor(rows)) for rows in ([0, 1], [3, 10]))
    (refusal,) = yielded(Select(), given, bad, tmp_path, monkeypatch, program=tmp_path / "model.pt2")
    assert isinstance(refusal, Refusal)
    assert refusal.inputs == (InputElement("rows", (1,), 1, "10"),)
