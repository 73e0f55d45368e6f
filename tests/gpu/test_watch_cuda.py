"""Watchpoints and summaries of many short launches on a GPU: statistics that wait are of the right moment."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import summaries
from aoti_debug.runs.rundir.summaries import CallSample
from tests.once import once
from tests.runtime_shims_cuda import samples
from tests.runtime_shims_cuda.checks import check_twins
from tests.runtime_shims_cuda.device_library import HASH, DeviceLibrary, HostLibrary
from tests.runtime_shims_cuda.gpu_device import stream_of

pytest_plugins = ("tests.runtime_shims_cuda.gpu_fixtures",)
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LAUNCHES = 40
CALLS = 60  # more than 1024 launches: a burst


class Chain(torch.nn.Module):
    """Reductions along another axis each time: buffers are reused, and some kernels write in place."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = []
        for number in range(LAUNCHES):
            x = (3 * x).softmax(number % 2) * (number + 1)
            if number % 5 == 0:
                kept.append(x)
        return x, *kept


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> Path:
        with torch.no_grad():
            program = torch.export.export(Chain().cuda().eval(), (torch.rand(64, 64, device="cuda"),))
        torch.export.save(program, folder / "model.pt2")
        return builder.build(folder / "model.pt2", output=folder / "chain.pt2")

    return once(tmp_path_factory, "cuda-watch-chain", make)


def sampled(package: Path, out: Path, crumb_every: int | None) -> dict[tuple[int, str], tuple[CallSample, ...]]:
    result = runner.run(RunOptions(package, out=out, level=3, calls=CALLS, summaries=1, crumb_every=crumb_every))
    kept = summaries.read(result.run)
    assert kept is not None
    return {(series.site, series.argument): series.samples for series in kept.series}


@pytest.mark.parametrize("crumb_every", [None, 16])
def test_summaries_are_those_without_waiting(package: Path, tmp_path: Path, crumb_every: int | None) -> None:
    expected = sampled(package, tmp_path / "exact", 1)
    assert sum(len(rows) for rows in expected.values()) >= CALLS * LAUNCHES
    found = sampled(package, tmp_path / "waiting", crumb_every)
    assert found == expected


@pytest.mark.parametrize("crumb_every", [None, 1, 16])
def test_every_call_hits_equally_often(package: Path, tmp_path: Path, crumb_every: int | None) -> None:
    watch = ("*: max > 2", "*: nan", "*: numel > 0")
    result = runner.run(RunOptions(package, level=3, out=tmp_path, calls=CALLS, watch=watch, crumb_every=crumb_every))
    large, nan, any_ = result.run.timeline.watchpoints
    assert large.hits > 0
    assert large.hits % CALLS == 0
    assert (nan.hits, any_.hits) == (0, any_.evaluated)
    first = [hit for hit in large.recorded if hit.key.call == 0]
    second = [hit for hit in large.recorded if hit.key.call == 1]
    assert [(hit.key.launch, hit.argument, hit.value) for hit in first] == [
        (hit.key.launch, hit.argument, hit.value) for hit in second[: len(first)]
    ]


def test_stop_ends_the_run(package: Path, tmp_path: Path) -> None:
    result = runner.run(
        RunOptions(package, level=3, out=tmp_path, calls=3, watch=("*: max > 2",), on_hit="stop", crumb_every=16)
    )
    assert result.run.state.value == "stopped"


def test_batches_are_what_the_host_computes(gpu: DeviceLibrary, host: HostLibrary) -> None:
    shapes = (1, 33, 256, 5000, 16_384, 262_144, 300_001)
    tensors = [samples.ordinary(dtype, count) for dtype in samples.DTYPES for count in shapes]
    views = [tensor.cuda() for tensor in tensors]
    views += [tensor[: tensor.numel() // 2 * 2].view(2, -1).t() for tensor in views[:14]]
    assert gpu.begin_all(views, stream_of()) == len(views)
    results = gpu.take(stream_of(), capacity=1024)
    assert results is not None
    for result, view in zip(results, views, strict=True):
        check_twins(result, host.statistics(view.cpu()), view.dtype)


@pytest.mark.parametrize("count", [1000, 1 << 22])
def test_statistics_are_of_the_moment(gpu: DeviceLibrary, count: int) -> None:
    """Kernels that begin early wait for those before them, and are waited for by those behind them."""
    x = torch.zeros(count, device="cuda")
    for value in range(300):
        x.fill_(value)
        if value % 3 == 0:
            x.add_(0.5)
        assert gpu.begin_all([x], stream_of()) == 1
    results = gpu.take(stream_of(), capacity=1024)
    assert results is not None
    assert [result.mean for result in results] == [value + (0.5 if value % 3 == 0 else 0) for value in range(300)]
    assert {(result.std, result.min_bits == result.max_bits) for result in results} == {(0.0, True)}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex128])
def test_hashes_of_rows_across_the_memory(gpu: DeviceLibrary, dtype: torch.dtype) -> None:
    x = samples.ordinary(dtype, 1 << 20).cuda()
    whole = [x.view(1024, 1024).t(), x.view(32, 128, 256).permute(2, 0, 1), x.view(4096, 256)[:, ::2].t(), x]
    found = {}
    for name, views in (("across", whole), ("along", [view.contiguous() for view in whole])):
        assert gpu.begin_all(views, stream_of(), wanted=HASH) == len(views)
        results = gpu.take(stream_of())
        assert results is not None
        found[name] = [result.hash for result in results]
    assert found["across"] == found["along"]
