"""A compiler whose results the tests share, in all processes that they are spread over."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.machine import compiler
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from tests.once import once


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of these tests."""
    return once(tmp_path_factory, "toolchain-cache", lambda folder: folder)


@pytest.fixture
def tools(cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    """Two jobs, a torch without headers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    return Toolchain(compiler.find_compiler(), Torch("2.13.0", Path("/nowhere"), "fingerprint"), jobs=2)
