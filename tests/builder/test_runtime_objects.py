from __future__ import annotations

from pathlib import Path

import pytest
from factories import make_manifest

from aoti_debug.builder import runtime_objects
from aoti_debug.builder.site_tables import sites_cpp
from aoti_debug.builder.toolchain import Toolchain
from aoti_debug.errors import ToolchainError
from aoti_debug.frontend.sources import Flags
from aoti_debug.machine.compiler import Torch, find_compiler
from aoti_debug.manifest import to_json

FLAGS = Flags("g++", (), (), (), (), (), (), ())


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Toolchain(find_compiler(), Torch("2.13.0", Path("/nowhere"), "fingerprint"))


def test_the_runtime_is_for_cpu_and_cuda(tools: Toolchain) -> None:
    with pytest.raises(ToolchainError, match="models for mps cannot be instrumented"):
        runtime_objects.compile_runtime(tools, "mps", FLAGS)


def test_every_device_has_a_file() -> None:
    assert all((runtime_objects.RUNTIME / path).is_file() for path in runtime_objects.DEVICES.values())


def test_tables_have_the_manifest_in_them(tools: Toolchain, tmp_path: Path) -> None:
    described = make_manifest()
    compiled = runtime_objects.compile_site_tables(tools, tmp_path, sites_cpp(described), to_json(described))
    assert to_json(described).encode() in compiled.read_bytes()
