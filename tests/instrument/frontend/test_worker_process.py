"""The cache of a lowering, and what it hands on to later ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.frontend import worker_process

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
