"""Inspectors in a model, found again in its package."""

from __future__ import annotations

from pathlib import Path

import inspected_model
import pytest
import torch
from built_model import importable
from once import once

from aoti_debug.builder import build as builder
from aoti_debug.cli import main

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    importable(TESTS)

    def make(folder: Path) -> Path:
        program = torch.export.export(inspected_model.Model(), (torch.ones(2, 4),))
        torch.export.save(program, folder / "model.pt2")
        return builder.build(folder / "model.pt2", output=folder / "inspected.pt2")

    return once(tmp_path_factory, "inspected", make)


def test_tags_are_found_again(
    package: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(
        "def f(tensor, launch):\n    print(launch.tag, tuple(tensor.shape), float(tensor.sum()))\n"
    )
    y = torch.ones(2, 4).sin()
    attention = f"attn.0 (2, 4) {float(y.sum())}"
    mlp = [f"mlp (2, 4) {float(value.sum())}" for value in (y, y * 2, y)]
    for tag, expected in (("attn*", [attention]), ("*", [attention, *mlp])):
        assert main.run(["run", str(package), "--inspect", "my.py:f", "--tag", tag]) == 0
        found = [line for line in capfd.readouterr().out.splitlines() if line.startswith(("attn", "mlp"))]
        assert found == expected
    assert main.run(["run", str(package), "--tag", "attn*"]) == 2
    assert capfd.readouterr().err.splitlines()[0] == "error: --tag needs --inspect"
