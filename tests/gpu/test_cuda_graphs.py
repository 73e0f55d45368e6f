"""Breadcrumbs and watchpoints that a CUDA graph holds, on a real device: faults and hits name replay and launch."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from built_model import Built

from aoti_debug.diagnosis.verdict import diagnose
from aoti_debug.rundir import run_directory

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CAPTURED = """
import os, sys, torch
import cuda_models
args, kwargs = torch.export.load(sys.argv[1]).example_inputs
model = torch._inductor.aoti_load_package(sys.argv[2], True)
model(*args)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    model(*args)
"""
FAULT_IN_A_REPLAY = f"""{CAPTURED}
for _ in range(999):
    graph.replay()
torch.cuda.synchronize()
args[0].fill_(1 << 40)
graph.replay()
try:
    torch.cuda.synchronize()
except Exception as error:
    print(error, flush=True)
    os._exit(3)
"""


@pytest.mark.parametrize(("every", "most_suspects"), [({"AOTI_DEBUG_CRUMB_EVERY": "1"}, 1), ({}, 16)])
def test_a_fault_in_a_replay_names_replay_and_launches(
    build: Callable[[str], Built], tmp_path: Path, every: dict[str, str], most_suspects: int
) -> None:
    built = build("gather")
    done = subprocess.run(
        [sys.executable, "-c", FAULT_IN_A_REPLAY, str(built.program), str(built.package)],
        env={**os.environ, "AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_DIR": str(tmp_path), **every},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    run = run_directory.open_run(base=tmp_path)
    assert [call.capturing for call in run.timeline.calls] == [False, True]
    verdict = diagnose(run)
    assert verdict is not None
    assert len(verdict.suspects) == most_suspects, verdict.why
    assert {launch.key.call for launch in verdict.suspects} == {1}
    assert any("gather" in launch.kernel for launch in verdict.suspects)
    assert verdict.why.endswith("in replay 1000 of the CUDA graph that captured call 1")


NAN_IN_A_REPLAY = f"""{CAPTURED}
for _ in range(730):
    graph.replay()
torch.cuda.synchronize()
args[0][1, 2] = float("nan")
for _ in range(3):
    graph.replay()
torch.cuda.synchronize()
"""


def test_nan_in_a_replay_names_replay_and_launch(build: Callable[[str], Built], tmp_path: Path) -> None:
    built = build("two_specialisations")
    done = subprocess.run(
        [sys.executable, "-c", NAN_IN_A_REPLAY, str(built.program), str(built.package)],
        env={**os.environ, "AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_DIR": str(tmp_path), "AOTI_DEBUG_WATCH": "*: nan"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (watchpoint,) = run_directory.open_run(base=tmp_path).timeline.watchpoints
    first = watchpoint.recorded[0]
    columns = torch.export.load(built.program).example_inputs[0][0].shape[1]
    assert (first.replay, first.key.call, first.element) == (731, 1, columns + 2)
    assert math.isnan(first.value)
    assert first.key.launch == min(hit.key.launch for hit in watchpoint.recorded)
    assert {hit.replay for hit in watchpoint.recorded} == {731}
    assert watchpoint.hits == 3 * len(watchpoint.recorded)
    assert "in replay 731 of the CUDA graph" in done.stderr
