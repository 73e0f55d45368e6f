"""A kernel that never ends: the watch over the process names it, with its grid."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_json import ExitKind, RunStage
from aoti_debug.runs.show.verdict import verdict_lines
from tests.built_model import Built

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

STALL = 5


def inputs(folder: Path, go: int) -> Path:
    path = folder / f"go{go}.pt"
    torch.save((torch.rand(4, 256, device="cuda"), torch.full((1,), go, dtype=torch.int32, device="cuda")), path)
    return path


def test_a_kernel_that_ends_is_left_alone(hanging: Built, tmp_path: Path) -> None:
    assert (
        runner.run(RunOptions(hanging.package, inputs=inputs(tmp_path, 1), out=tmp_path / "runs", stall=STALL)).verdict
        is None
    )


@pytest.mark.parametrize("limit", ["stall", "timeout"])
def test_a_kernel_that_never_ends_is_named_with_its_grid(hanging: Built, tmp_path: Path, limit: str) -> None:
    limits: dict[str, Any] = {limit: STALL if limit == "stall" else 90}  # counted from before the package is loaded
    began = time.monotonic()
    result = runner.run(RunOptions(hanging.package, inputs=inputs(tmp_path, 0), out=tmp_path / "runs", **limits))
    assert time.monotonic() - began < 240
    verdict = result.verdict
    assert verdict is not None
    assert result.run.state is ExitKind.TIMEOUT
    assert result.run.info.exit.stage in (RunStage.CALL, RunStage.SYNCHRONISE)
    assert verdict.proof is Proof.CERTAIN
    assert verdict.launch is not None
    assert verdict.launch.kernel.startswith("waiting_kernel")
    assert verdict.launch.grid is not None
    assert verdict.launch.grid.grid == (16, 1, 1)
    lines = verdict_lines(verdict, 100)
    print("\n".join(lines))
    assert any(line.startswith("  grid     ") and "16 × 1 × 1, 4 warps" in line for line in lines)
    assert any("float32[4,256] cuda:0" in line for line in lines)
