"""The errors of the process that evaluates, as it tells them."""

from __future__ import annotations

import errno
import socket
import sys
from pathlib import Path

import pytest

from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine.files import json_data
from aoti_debug.compare.protocol import messages
from aoti_debug.compare.protocol.messages import EvaluationFailed, Started
from aoti_debug.compare.protocol.request import CompareRequest
from aoti_debug.compare.worker import main as worker


def failed(folder: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> EvaluationFailed:
    """The message of a process whose evaluation ends with this exception."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(worker, "_compare", fail)
    monkeypatch.setattr(worker, "keep_freed_memory", lambda: None)
    path = folder / "request.json"
    path.write_text(json_data.to_text(CompareRequest(package="p.pt2", device="cpu", regions=())))
    parent, child = socket.socketpair()
    with parent:
        monkeypatch.setattr(sys, "argv", ["worker", str(child.detach()), "cpu"])
        parent.sendall(f"{path}\n".encode())
        assert worker.main() == 1
        lines = parent.makefile("rb").read().splitlines()
    started, ended = map(messages.read_message, lines)
    assert isinstance(started, Started)
    assert isinstance(ended, EvaluationFailed)
    return ended


@pytest.mark.parametrize("is_cause", [False, True])
def test_what_the_system_refuses_is_told_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cause: bool
) -> None:
    refused: Exception = OSError(errno.EIO, "Input/output error", "/tmp/0.safetensors")
    if is_cause:
        outer = RuntimeError("cannot save")
        outer.__cause__, refused = refused, outer
    error = failed(tmp_path, refused, monkeypatch).error.to_error()
    assert isinstance(error, TargetError)
    assert str(error) == "the process that evaluates the program failed: Input/output error: /tmp/0.safetensors"
    assert "--import" not in error.hint
    assert error.hint


def test_what_a_program_raises_is_left_to_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = failed(tmp_path, AttributeError("_OpNamespace has no attribute"), monkeypatch).error
    assert described.to_error() is None
    full = failed(tmp_path, OSError(errno.ENOSPC, "No space left on device"), monkeypatch).error
    assert full.lacks == "disk space"
