"""The process of a lowering, its cache, and what it hands on to later ones."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.frontend import worker_process
from aoti_debug.instrument.frontend.protocol.messages import Request

TORCH = Torch("2.13.0", Path("/nowhere"), "fingerprint")


@pytest.mark.parametrize("links", [True, False])
def test_results_are_handed_on_to_the_next_lowering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refused(_source: object, _target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if not links:
        monkeypatch.setattr(os, "link", refused)
    with worker_process.environment(tmp_path / "first", TORCH) as first:
        own = Path(first["TORCHINDUCTOR_CACHE_DIR"])
        for name in ("ab/isa.so", "ab/isa.lock", "model/kernel.cpp"):
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text(name)
    with worker_process.environment(tmp_path / "second", TORCH) as second:
        found = Path(second["TORCHINDUCTOR_CACHE_DIR"])
        assert [path.relative_to(found).as_posix() for path in found.rglob("*") if path.is_file()] == ["ab/isa.so"]
        assert (found / "ab/isa.so").read_text() == "ab/isa.so"


def test_a_worker_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # no server fits: it is a new process
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_python"))
    (tmp_path / "lowering").mkdir()
    with pytest.raises(ToolchainError, match="a process of some_module cannot be started: No such file"):
        worker_process.run_worker("some_module", Request("program.pt2", str(tmp_path / "lowering")), TORCH, 60)
