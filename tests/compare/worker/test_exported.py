"""The exported program is called for its states; a program that fails in eager does not end the comparison."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.compare.protocol.measurement import StatesFailure
from aoti_debug.compare.worker import exported as worker
from aoti_debug.compare.worker.exported import exported_states
from aoti_debug.inputs.files import Inputs
from aoti_debug.reference.program import FORMAT, Reference


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The packages whose embedded inputs were read."""
    read: list[object] = []

    def embedded(package: object) -> Inputs:
        read.append(package)
        return Inputs((), {})

    monkeypatch.setattr(worker.files, "read_embedded", embedded)
    return read


def changes(exported: Path, *states: object) -> list[Any]:
    runs: Any = [SimpleNamespace(states=states, call=0)]
    package: Any = "package.pt2"
    return list(exported_states(exported, package, "", Reference(FORMAT, "2.13.0", ()), runs))


def test_a_program_that_fails_in_eager_is_said(tmp_path: Path, called: list[object]) -> None:
    broken = tmp_path / "model.pt2"
    broken.write_bytes(b"no archive")
    (failure,) = changes(broken, SimpleNamespace(name="total"))
    assert isinstance(failure, StatesFailure)
    assert failure.reason.startswith("it fails in eager: ")
    assert called


def test_without_states_nothing_is_read(tmp_path: Path, called: list[object]) -> None:
    assert changes(tmp_path / "none.pt2") == []
    assert called == []
