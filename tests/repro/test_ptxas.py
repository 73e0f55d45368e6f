"""Which ptxas a Triton repro compiles with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs triton")

from aoti_debug.repro.templates import ptxas

CUBIN = b"\x7fELF\0ptxas\0Cuda compilation tools, release 13.0, V13.0.88\0Build cuda_13.0\0"


def tool(folder: Path, version: str) -> Path:
    """A ptxas that says its version."""
    folder.mkdir(parents=True)
    path = folder / "ptxas"
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V{version}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ptxas.VARIABLE, "")
    monkeypatch.delenv(ptxas.VARIABLE)


def test_version() -> None:
    assert ptxas.version_in(CUBIN) == "13.0.88"
    assert ptxas.version_in(b"\x7fELF, and nothing of its tool") is None


def test_the_one_of_the_machine_code_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, same = tool(tmp_path / "other", "12.8.93"), tool(tmp_path / "same", "13.0.88")
    monkeypatch.setattr(ptxas, "candidates", lambda: iter([tmp_path / "missing", other, same]))
    ptxas.use_ptxas_of(CUBIN)
    assert os.environ[ptxas.VARIABLE] == str(same)


def test_the_users_choice_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ptxas.VARIABLE, "/mine")
    monkeypatch.setattr(ptxas, "candidates", lambda: iter([tool(tmp_path / "same", "13.0.88")]))
    ptxas.use_ptxas_of(CUBIN)
    assert os.environ[ptxas.VARIABLE] == "/mine"


def test_without_a_fitting_one_tritons_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "candidates", lambda: iter([tool(tmp_path / "other", "12.8.93")]))
    ptxas.use_ptxas_of(CUBIN)
    assert ptxas.VARIABLE not in os.environ


def test_cuda_home_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path / "cuda" / "bin", "13.0.88")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert path in list(ptxas.candidates())
