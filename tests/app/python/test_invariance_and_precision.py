"""aoti_debug.invariance_by_size: a module whose batch cannot vary, exported and built for each size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aoti_debug
from aoti_debug.base.errors import UsageError


class BySize(nn.Module):
    """Rows that one size of the batch scales otherwise, and rows that none does."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * (0.3 if x.shape[0] == 1 else 0.7), x.relu()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_package_of_each_size(here: Path) -> None:
    x = torch.linspace(-1, 1, 12).reshape(4, 3) + 2
    found = aoti_debug.invariance_by_size(BySize(), x, sizes=(4, 1, 4), row=2, out="runs")
    assert not found.is_same
    assert found.found.sizes == (1, 4)
    assert found.found.directory.parent.resolve() == here / "runs"
    assert {one.index for one in found.found.outputs if one.difference} == {0}
    lines = str(found).splitlines()
    assert lines[0] == "sample   1 row along axis 0 of x, which is fixed: a package for each size: 1, 4"
    assert "output 0: 3 of 3 elements of the sample differ, at most " in str(found)
    assert (
        "note: packages of several sizes are several compilations, so no launch can be named for a difference" in lines
    )
    assert lines[-1] == "VARIES from package to package: their sizes differ; kernels and algorithms may"
    same = aoti_debug.invariance_by_size(nn.ReLU(), x, sizes=(1, 4))
    assert same.is_same, str(same)
    assert (here / "aoti-debug" / "diffs").is_dir()


def test_a_row_that_the_inputs_do_not_hold(here: Path) -> None:
    with pytest.raises(UsageError, match="the inputs have 4 rows: there is no row 4"):
        aoti_debug.invariance_by_size(BySize(), torch.ones(4, 3), row=4)
    assert not list(here.iterdir())
