"""Libraries without a package."""

from __future__ import annotations

import _struct
from pathlib import Path

import pytest
import torch

from aoti_debug.app.execute import bare_libraries
from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.native.elf import Library
from aoti_debug.package.pt2 import archive


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        return x.sin() * scale


def test_the_program_of_a_graph() -> None:
    x, scale = torch.ones(4, 8), torch.ones(8)
    rows = torch.export.Dim("rows")
    first = torch.export.export(Model(), (x,), {"scale": scale}, dynamic_shapes={"x": {0: rows}, "scale": None})
    program = bare_libraries.exported(first.module(check_guards=False), (x,), {"scale": scale})
    (dynamic, _, scaled) = (
        node.meta["val"].shape for node in program.graph.nodes if node.name in ("x", "scale", "mul")
    )
    assert isinstance(dynamic[0], torch.SymInt)
    assert dynamic == scaled
    lines = [node.meta["stack_trace"] for node in program.graph.nodes if node.op == "call_function"]
    assert all("return x.sin() * scale" in line for line in lines)
    assert len(lines) == 2


def test_a_library_without_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "model.so"
    library.symlink_to(_struct.__file__)
    (tmp_path / "own.wrapper.cpp").touch()
    assert bare_libraries.is_library(library)
    assert not bare_libraries.is_library(tmp_path / "own.wrapper.cpp")
    assert not bare_libraries.is_library(tmp_path / "missing.so")
    package = archive.inspect(bare_libraries.packaged(library, tmp_path))
    assert package.path.name == "model.so.pt2"
    assert package.read(f"{archive.MODEL_FOLDER}model.wrapper.so") == library.read_bytes()
    assert not package.has_source("model")
    monkeypatch.setattr(Library, "relocated_symbols", lambda _: frozenset({"cuLaunchKernelEx"}))
    with pytest.raises(ArtifactError, match=r"model\.so is for a GPU and has no sources beside it"):
        bare_libraries.packaged(library, tmp_path)
