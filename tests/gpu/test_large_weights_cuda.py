"""Weights that are too large to be copied into packages, and a fault in a launch that reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.app.cli import main
from aoti_debug.package.pt2 import archive

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
ROWS, WIDTH = 300_000, 512  # 586 MiB: more than the runtime has memory for copies that are on their way


class Lookup(nn.Module):
    """Looks up rows of a large table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.relu(self.head(self.table(ids)))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    ids = torch.arange(64, device="cuda")
    with torch.no_grad():
        torch.export.save(torch.export.export(Lookup().eval().cuda(), (ids,)), path)
    torch.save({"args": (torch.where(ids == 5, 1 << 40, ids),), "kwargs": {}}, path.with_name("bad.pt"))
    return path


def test_a_bad_index_into_a_large_table_has_a_repro(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["triage", str(program), "--inputs", str(program.with_name("bad.pt")), "--json"]) == 1
    finding = json.loads(capsys.readouterr().out)
    assert (finding["kind"], finding["warnings"]) == ("fault", [])
    assert Path(finding["repro"]).is_dir()
    (package,) = tmp_path.glob("aoti-debug/triages/2*/package.pt2")
    weights = archive.inspect(package).manifest().weights
    assert weights is not None
    assert weights.path == str(program)
    assert package.stat().st_size < 32 << 20
    saved = list(tmp_path.glob("aoti-debug/triages/2*/runs/**/before_launch_*table_weight*"))
    assert saved
    assert all(path.name.endswith(".weight.json") for path in saved)  # the hash on the device is that of the program's
    (inside,) = tmp_path.glob("aoti-debug/triages/2*/repro/tensors/before_*table_weight*")
    assert inside.stat().st_size > ROWS * WIDTH * 4


def test_a_clean_model_is_compared_with_its_program(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["triage", str(program)]) == 0
    assert "outputs finite, 3 of 3 launches computed what the program says" in capsys.readouterr().out
