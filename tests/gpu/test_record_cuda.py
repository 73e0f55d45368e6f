"""aoti_debug.record on a GPU: values, replays of a CUDA graph, and an error of the device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import aoti_debug
from aoti_debug.runs.diagnosis.findings import NONFINITE
from aoti_debug.runs.show.calls_and_replays import replay_lines
from tests.gpu.test_scripts_cuda import SCRIPT
from tests.paths import ROOT

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Ratio(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) * 2
        return y / y.sum(-1, keepdim=True)


def test_values_and_replays(tmp_path: Path) -> None:
    x = torch.rand(4, 64, device="cuda") + 1
    program = torch.export.export(Ratio(), (x,))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "ratio.pt2"))
    with aoti_debug.record(level=2, out=tmp_path / "runs", keep_inputs=True) as recorded:
        model = torch._inductor.aoti_load_package(path, run_single_threaded=True)
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    (run,) = recorded.runs
    assert any("replay 3 of the CUDA graph" in line for line in replay_lines(run, run.launches, 200))
    graph.replay()
    torch.cuda.synchronize()
    assert y.isfinite().all()
    with aoti_debug.record(level=2, out=tmp_path / "runs", keep_inputs=True) as again:
        x[1] = 0
        model(x)
    assert again.finding is not None
    assert again.finding.kind == NONFINITE
    assert again.call is not None
    assert again.call.inputs is not None
    assert torch.equal(torch.load(again.call.inputs)["0"], x.cpu())
    found = aoti_debug.triage(again, out=tmp_path / "triages")
    assert found.finding.kind == NONFINITE


def test_an_error_of_the_device(tmp_path: Path) -> None:
    head, _, _ = SCRIPT.partition("    loaded = torch._inductor")
    text = (
        f"import aoti_debug\n{head}"
        "    block = aoti_debug.record()\n"
        "    try:\n"
        "        with block:\n"
        "            loaded = torch._inductor.aoti_load_package(path)\n"
        "            loaded(index, scale)\n"
        "            index[100] = 1 << 40\n"
        "            loaded(index, scale)\n"
        "            torch.cuda.synchronize()\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__)\n"
        "    print(block)\n"
    )
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[1:2] == ["FAULT invalid memory access on the GPU in lookup_kernel_0"], done.stdout + done.stderr
    assert lines[2].split()[:3] == ["at", "1.2", "lookup_kernel_0"]
