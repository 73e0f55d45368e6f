"""Ranks of torchrun on the CPU (gloo): a script that loads the package, and `aoti-debug run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aoti_debug.instrument.builder import build as builder
from tests import forked_script
from tests.once import once
from tests.paths import ROOT

pytestmark = pytest.mark.slow

OPERATOR = "aotidebugranks::act.default"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> Path:
        save = folder / "save.py"
        save.write_text(
            "import sys, torch\nfrom tests import rank_model\ntorch.export.save(rank_model.program(), sys.argv[1])\n"
        )
        forked_script.run(save, folder / "ranks.pt2")
        return builder.build(
            folder / "ranks.pt2", output=folder / "ranks.instrumented.pt2", imports=("tests.rank_model",)
        )

    return once(tmp_path_factory, "ranks", make)


def variables(**more: str) -> dict[str, str]:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    torch = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "1"}  # no rank tries the instruction sets again
    return {**os.environ, **torch, "PYTHONPATH": path, "AOTI_DEBUG_PRINT": "none", **more}


def torchrun(ranks: int, base: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = variables(AOTI_DEBUG_DIR=str(base), **more)
    return subprocess.run(
        [*launcher, *command], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def aoti_debug(base: Path, *words: str) -> str:
    command = [sys.executable, "-m", "aoti_debug", *words]
    done = subprocess.run(command, env=variables(AOTI_DEBUG_DIR=str(base)), capture_output=True, text=True, check=True)
    return done.stdout


def test_a_script_one_of_whose_ranks_is_killed(package: Path, tmp_path: Path) -> None:
    more = {"AOTI_DEBUG_LEVEL": "2", "RANK_FAULT": "2:1:kill", "RANK_WEIGHTS": "1"}
    done = torchrun(3, tmp_path, "-m", "tests.rank_model", str(package), "3", **more)
    found = json.loads(aoti_debug(tmp_path, "show", "--json"))
    first = found["first_failure"]
    assert (first["rank"], first["launch"], first["kernel"]) == (2, "1.2", OPERATOR), done.stderr
    assert found["ranks"][2]["end"] == "killed"
    assert [wait["missing"] for wait in found["waits"]] == [[2]]
    assert found["partings"] == []
    (odd,) = found["agreement"]["disagreements"]
    assert (odd["subject"], odd["name"], odd["odd"]) == ("weight", "second.weight", [1])
    page = Path(aoti_debug(tmp_path, "report").splitlines()[0])
    assert "rank 2 failed first" in page.read_text()
    assert (page.parents[1] / "rank0" / "report" / "index.html").exists()


def test_run_with_a_rank_that_throws(package: Path, tmp_path: Path) -> None:
    command = ("-m", "aoti_debug", "run", str(package), "--calls", "2", "--level", "1", "--ranks", "0")
    done = torchrun(2, tmp_path, *command, RANK_FAULT="1:1:throw")
    assert "rank1" in done.stdout
    text = aoti_debug(tmp_path, "show")
    assert "FAULT rank 1 failed first: ValueError: the answer is not 42 in 1.2" in text
    assert "rank 0 waits in 1.6" in text
    latest = (tmp_path / "latest").resolve()
    assert sorted(path.name for path in latest.iterdir() if path.name.startswith("rank")) == [
        *("rank0", "rank1", "ranks.json")
    ]
    assert (latest / "rank0" / "tensors").exists()
    assert not (latest / "rank1" / "tensors").exists()
    assert "aotidebugranks::act.default" in aoti_debug(tmp_path, "show", "1.2").splitlines()[0]
