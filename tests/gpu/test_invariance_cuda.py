"""A sample alone and in batches on a GPU: generated kernels have one configuration, the library chooses by size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aoti_debug
from aoti_debug.compare.invariance.invariance import InvarianceOptions, invariance
from aoti_debug.compare.invariance.remedies import try_remedies
from aoti_debug.compare.invariance.sample_rows import RowsRelation
from aoti_debug.compare.invariance.text import facts

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Normed(nn.Module):
    """Generated kernels alone: a normalisation, a softmax over a long axis, a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(1024)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.softmax(self.norm(x), -1)
        return hidden, hidden.square().sum(-1)


class Products(nn.Module):
    """Matrix products of the library around a generated kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(512, 2048), nn.Linear(2048, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(nn.functional.gelu(self.first(x)))


def test_generated_kernels_have_one_configuration_for_all_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = aoti_debug.invariance(Normed().cuda(), torch.randn(8, 1024, device="cuda"))
    assert found.is_invariant, str(found)


def test_only_the_library_is_named_and_the_build_that_helps_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module, x = Products().cuda().bfloat16(), torch.randn(8, 512, device="cuda", dtype=torch.bfloat16)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = Path("model.pt2")
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: batch},)), program)
    options = InvarianceOptions(model=program, out=tmp_path / "runs")
    found = invariance(options)
    assert found.is_complete
    kernels = found.alone.run.manifest.kernels
    for item in found.begins:
        assert item.first.launch.site.op, item.first.launch.kernel
        assert {tensor.rows.relation for tensor in item.first.reads} == {RowsRelation.EQUAL}
        assert any("routine of a library" in fact for fact in facts(item.first, kernels))
    for trial in try_remedies(found, options):
        assert trial.works == (trial.found is not None and trial.found.verdict.startswith("INVARIANT"))
