"""Two ranks of NCCL, each on a GPU of its own: who failed first, who waits, and results that should agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.ranks.ranks_analysis import AgreementReason, RanksAnalysis, analyse
from aoti_debug.runs.ranks.ranks_run import End, open_ranks
from aoti_debug.runs.ranks.text import ranks_lines
from tests.once import once

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
OPERATOR = "aotidebugranks::act.default"
CALLS = "3"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> Path:
        export = "torch.export.save(rank_model.program('cuda'), sys.argv[1])"
        save = f"import sys, torch; from tests import rank_model; {export}"
        subprocess.run([sys.executable, "-c", save, str(folder / "ranks.pt2")], check=True, env=variables())
        return builder.build(
            folder / "ranks.pt2", output=folder / "ranks.instrumented.pt2", imports=("tests.rank_model",)
        )

    return once(tmp_path_factory, "cuda-ranks", make)


def variables(**more: str) -> dict[str, str]:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    ours = {"PYTHONPATH": path, "RANK_BACKEND": "nccl", "AOTI_DEBUG_PRINT": "none", "AOTI_DEBUG_CRUMB_EVERY": "1"}
    return {**os.environ, **ours, **more}


def launched(base: Path, *command: str, **more: str) -> RanksAnalysis:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, *command],
        env=variables(AOTI_DEBUG_DIR=str(base), **more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    print(done.stdout[-2000:], done.stderr[-4000:])
    analysis = analyse(open_ranks((base / "latest").resolve()))
    print("\n".join(ranks_lines(analysis, 200)))
    return analysis


def test_ranks_that_agree(package: Path, tmp_path: Path) -> None:
    analysis = launched(tmp_path, "-m", "tests.rank_model", str(package), CALLS, AOTI_DEBUG_LEVEL="2")
    assert [rank.progress.end for rank in analysis.run.ranks] == [End.FINISHED] * 2
    assert analysis.failure is None
    assert analysis.agreement.compared > int(CALLS)  # weights, and the sum of each call
    assert analysis.agreement.disagreements == ()


def test_the_odd_weight(package: Path, tmp_path: Path) -> None:
    analysis = launched(tmp_path, "-m", "tests.rank_model", str(package), "1", AOTI_DEBUG_LEVEL="2", RANK_WEIGHTS="1")
    found = [(one.subject, one.name) for one in analysis.agreement.disagreements]
    assert found == [(AgreementReason.WEIGHT, "second.weight")]


@pytest.mark.parametrize("failure", ["device", "fault", "throw", "kill"])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_fails_first(package: Path, tmp_path: Path, failure: str, rank: int) -> None:
    analysis = launched(tmp_path, "-m", "tests.rank_model", str(package), CALLS, RANK_FAULT=f"{rank}:1:{failure}")
    found = analysis.failure
    assert found is not None
    assert found.rank.number == rank
    assert found.launch is not None
    assert (found.launch.key.call, found.launch.kernel) == (1, OPERATOR)


def test_a_rank_that_hangs(package: Path, tmp_path: Path) -> None:
    """NCCL ends the process of the rank that waits; torchrun then ends the one that hangs."""
    more = {"RANK_FAULT": "0:1:hang", "RANK_TIMEOUT": "20"}
    analysis = launched(tmp_path, "-m", "tests.rank_model", str(package), CALLS, **more)
    found = analysis.failure
    assert found is not None
    assert (found.rank.number, found.what) == (0, "it hangs")
    assert found.launch is not None
    assert found.launch.kernel == OPERATOR
    assert [wait.ranks for wait in analysis.waits] == [(1,)]


def test_each_rank_of_run_gets_a_gpu_of_its_own(package: Path, tmp_path: Path) -> None:
    """NCCL refuses two ranks on one GPU."""
    analysis = launched(tmp_path, "-m", "aoti_debug", "run", str(package), "--calls", CALLS, "--level", "2", "--trust")
    assert [rank.progress.end for rank in analysis.run.ranks] == [End.FINISHED] * 2
    assert analysis.agreement.disagreements == ()
