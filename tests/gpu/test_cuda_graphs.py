"""Breadcrumbs that a CUDA graph holds, on a real device: a fault in a replay names the launch of the captured call."""

from __future__ import annotations

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

FAULT_IN_A_REPLAY = """
import os, sys, torch
import cuda_models
args, kwargs = torch.export.load(sys.argv[1]).example_inputs
model = torch._inductor.aoti_load_package(sys.argv[2], True)
model(*args)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    model(*args)
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


def test_a_fault_in_a_replay_names_the_launch(build: Callable[[str], Built], tmp_path: Path) -> None:
    built = build("gather")
    done = subprocess.run(
        [sys.executable, "-c", FAULT_IN_A_REPLAY, str(built.program), str(built.package)],
        env={**os.environ, "AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    run = run_directory.open_run(base=tmp_path)
    assert [call.capturing for call in run.timeline.calls] == [False, True]
    verdict = diagnose(run)
    assert verdict is not None
    assert verdict.launch is not None, verdict.why
    assert "gather" in verdict.launch.kernel
    assert verdict.launch.key.call == 1
    assert verdict.why.endswith("in replay 1000 of the CUDA graph that captured call 1")
