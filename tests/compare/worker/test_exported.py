"""The exported program is called for its states; a program that fails in eager does not end the comparison."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from aoti_debug.compare.protocol.measurement import StatesFailure
from aoti_debug.compare.worker import exported as worker
from aoti_debug.compare.worker.exported import exported_results
from aoti_debug.inputs.input_files import Inputs
from aoti_debug.reference.program import FORMAT, Reference
from aoti_debug.run import saved_outputs


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self) -> torch.Tensor:
        self.count.add_(1)
        return self.count + 0


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The packages whose embedded inputs were read."""
    read: list[object] = []

    def embedded(package: object) -> Inputs:
        read.append(package)
        return Inputs((), {})

    monkeypatch.setattr(worker.input_files, "read_embedded", embedded)
    return read


def results(exported: Path, calls: int = 1) -> list[Any]:
    runs: Any = [SimpleNamespace(states=(), call=call) for call in range(calls)]
    package: Any = "package.pt2"
    reference = Reference(FORMAT, "2.13.0", ())
    return list(exported_results(exported, package, "", reference, runs, exported.parent / "outputs"))


def test_a_program_that_fails_in_eager_is_said(tmp_path: Path, called: list[object]) -> None:
    broken = tmp_path / "model.pt2"
    broken.write_bytes(b"no archive")
    (failure,) = results(broken)
    assert isinstance(failure, StatesFailure)
    assert failure.reason.startswith("it fails in eager: ")
    assert called


def test_without_a_call_nothing_is_read(tmp_path: Path, called: list[object]) -> None:
    assert results(tmp_path / "none.pt2", calls=0) == []
    assert called == []


def test_what_the_last_call_returns_is_kept(tmp_path: Path, called: list[object]) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Counter(), ()), path)
    (kept,) = results(path, calls=3)
    (output,) = saved_outputs.saved(Path(kept.path)).values()
    assert load_file(output)["0"].item() == 3
    assert called
