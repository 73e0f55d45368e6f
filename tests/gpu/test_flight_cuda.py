"""The flight recorder on a CUDA device: one run is enough for a fault that does not come again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.diagnosed_run import open_diagnosed
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import load_tensors, rescued_tensors
from aoti_debug.runs.rundir.formats import shared_files
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built
from tests.gpu.queued import QUEUED

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

HERE = Path(__file__).resolve().parent
BAD_INDEX = 1 << 40
KERNEL = "gather_kernel"


@pytest.fixture
def gather(build: Callable[[str], Built]) -> Callable[[], Built]:
    """A lookup in a table as a user's Triton kernel, with forty launches behind it."""
    return lambda: build("gather")


def bad_index() -> torch.Tensor:
    index = torch.randint(0, 500, (256,), generator=torch.Generator().manual_seed(7))
    index[100] = BAD_INDEX
    return index


def inputs_of(run: RunDir, launch: str) -> list[torch.Tensor]:
    return [tensor.cpu() for tensor in load_tensors.load_launch(run, run.launch(launch), Phase.BEFORE).values()]


def holds_the_bad_index(run: RunDir, launch: str) -> bool:
    return any(torch.equal(tensor, bad_index() * 2) for tensor in inputs_of(run, launch))


def hosted(folder: Path, **variables: object) -> dict[str, str]:
    ours = {"LEVEL": 3, "DIR": folder, "FLIGHT": 4, **variables}
    return {**os.environ, **{f"AOTI_DEBUG_{name}": str(value) for name, value in ours.items()}}


@pytest.mark.parametrize("level", [3, 2])
def test_the_faulting_launchs_inputs_are_rescued(gather: Callable[[], Built], tmp_path: Path, level: int) -> None:
    inputs = tmp_path / "bad.pt"
    torch.save((bad_index().cuda(),), inputs)
    result = runner.run(RunOptions(gather().package, inputs=inputs, out=tmp_path / "runs", level=level, flight=4))
    inputs.unlink()  # it does not come again
    assert result.verdict is not None
    assert result.verdict.launch is not None
    suspect = result.verdict.launch
    assert suspect.kernel.startswith(KERNEL)
    assert result.lost == ""
    assert holds_the_bad_index(result.run, suspect.id)
    assert any(tensor.shape == (1000, 64) for tensor in inputs_of(result.run, suspect.id))
    assert inputs_of(result.run, f"0.{suspect.key.launch - 1}")
    assert not (result.run.path / shared_files.FLIGHT_RECORDER).is_symlink()
    repro = write_repro(ReproOptions(suspect.kernel, run=result.run.path, output=tmp_path / "repro"))
    assert repro.run == result.run.path
    done = subprocess.run([sys.executable, str(repro.script)], capture_output=True, text=True, check=False)
    assert (done.returncode, "fault reproduced" in done.stdout) == (11, True), done.stdout + done.stderr


@pytest.mark.parametrize("room", ["4M", "64M"])
def test_the_host_may_be_far_ahead_of_the_device(gather: Callable[[], Built], tmp_path: Path, room: str) -> None:
    """Forty launches are queued behind the fault and take its room, as the host sees it."""
    built = gather()
    torch.save((bad_index().cuda(),), tmp_path / "bad.pt")
    command = [sys.executable, "-c", QUEUED, *map(str, (built.program, built.package, tmp_path / "bad.pt"))]
    env = hosted(tmp_path / "runs", FLIGHT_BYTES=room)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode < 0, done.stderr
    run = open_diagnosed(base=tmp_path / "runs").run
    verdict = diagnose(run)
    assert verdict is not None
    assert verdict.launch is not None
    assert verdict.launch.kernel.startswith(KERNEL)
    assert holds_the_bad_index(run, verdict.launch.id)


STREAMS = """
import os, sys, threading, torch
from tests.gpu import cuda_models
(index,), _ = torch.export.load(sys.argv[1]).example_inputs
loader = torch._C._aoti.AOTIModelPackageLoader(sys.argv[2], "model", False, 2, -1)
loader.boxed_run([index])
torch.cuda.synchronize()
def work(number):
    with torch.cuda.stream(torch.cuda.Stream()):
        mine = torch.full_like(index, number)
        torch.cuda.current_stream().synchronize()
        for _ in range(50): loader.boxed_run([mine])
threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
[t.start() for t in threads]; [t.join() for t in threads]
torch.cuda.synchronize()
if sys.argv[3] == "abort": os.abort()
"""


@pytest.mark.parametrize("ending", ["abort", "exit"])
def test_streams_do_not_tear_each_others_launches(gather: Callable[[], Built], tmp_path: Path, ending: str) -> None:
    built = gather()
    command = [sys.executable, "-c", STREAMS, str(built.program), str(built.package), ending]
    env = hosted(tmp_path / "runs", FLIGHT=64, FLIGHT_BYTES="6M")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    path = (tmp_path / "runs" / "latest").resolve()
    if ending == "exit":
        assert done.returncode == 0, done.stderr
        assert not (path / shared_files.FLIGHT_RECORDER).is_symlink()
        return
    assert done.returncode < 0, done.stderr
    run = open_diagnosed(path).run
    found = {record.key for record in rescued_tensors.read(path) if record.path}
    gathers = [launch for launch in run.launches if launch.key in found and launch.kernel.startswith(KERNEL)]
    assert gathers
    for launch in gathers:
        indices = [tensor for tensor in inputs_of(run, launch.id) if tensor.dtype is torch.int64]
        assert [set(index.tolist()) in ({2}, {4}) for index in indices] == [True]


GRAPH = """
import sys, torch
from tests.gpu import cuda_models
args, kwargs = torch.export.load(sys.argv[1]).example_inputs
model = torch._inductor.aoti_load_package(sys.argv[2], True)
expected = model(*args)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = model(*args)
graph.replay()
torch.cuda.synchronize()
print(torch.equal(expected, captured))
"""


def test_graph_capture_is_left_alone(gather: Callable[[], Built], tmp_path: Path) -> None:
    built = gather()
    command = [sys.executable, "-c", GRAPH, str(built.program), str(built.package)]
    done = subprocess.run(command, env=hosted(tmp_path / "runs"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
