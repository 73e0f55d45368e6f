"""FX repros of launches on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import UsageError
from aoti_debug.compare.fx_repro.fx_repro import FxExtra, write_fx_repro
from aoti_debug.repro.repro import ReproOptions
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from tests.built_model import Built

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_launches_of_triton_kernels_and_of_libraries(build: Callable[[str], Built], tmp_path: Path) -> None:
    run = runner.run(RunOptions(build("mixed").package, level=1, phase="both", filters=(), out=tmp_path / "runs")).run
    codes = {}
    refused = []
    for launch in run.launches:
        path = tmp_path / launch.id
        try:
            repro = write_fx_repro(
                ReproOptions(launch.kernel, run=run.path, launch=launch.id, output=path), [FxExtra.ISSUE]
            )
        except UsageError as error:
            refused.append(str(error))
            continue
        codes[launch.kernel] = repro.code
        assert "- GPU NVIDIA" in (path / "issue.md").read_text()
    assert set(codes.values()) == {0}, codes
    assert len(codes) >= 8, refused
    assert any(kernel.startswith("triton_") for kernel in codes)
