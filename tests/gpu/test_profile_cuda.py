"""A profile of a model on a GPU, beside torch's own profiler."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity

from aoti_debug.builder import build as builder
from aoti_debug.cli import main
from aoti_debug.profile.document import document
from aoti_debug.profile.model_profile import ModelProfile
from aoti_debug.profile.options import ProfileOptions
from aoti_debug.profile.profile import profile

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CALLS = 20


class Uneven(nn.Module):
    """Generated kernels over tensors of very different sizes, and a product of large matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4096, 4096)

    def forward(self, x: Tensor, small: Tensor) -> tuple[Tensor, ...]:
        wide, rows = x.repeat(4, 8), x.repeat(6, 8)  # of other sizes each: never one kernel
        sums = x.repeat(3, 8).cumsum(-1)
        return wide.softmax(-1), sums, rows.sin(), (small.sin() + small).cumsum(-1), self.linear(x.repeat(4, 4))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uneven")
    torch.manual_seed(0)
    inputs = torch.randn(1024, 1024, device="cuda"), torch.randn(512, 1024, device="cuda")
    with torch.no_grad():
        program = torch.export.export(Uneven().cuda().eval(), inputs)
        torch.export.save(program, folder / "model.pt2")
    return builder.build(folder / "model.pt2", output=folder / "model.instrumented.pt2")


@pytest.fixture(scope="module")
def times(package: Path) -> dict[str, float]:
    """Seconds of each kernel, copy and fill in a call, by torch's profiler, without any recording of ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTI_DEBUG_LEVEL", "0")
        model = torch._inductor.aoti_load_package(str(package))
        args, kwargs = torch.export.load(package.parent / "model.pt2").example_inputs
        with torch.no_grad():
            for _ in range(3):
                model(*args, **kwargs)
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
                for _ in range(CALLS):
                    model(*args, **kwargs)
                torch.cuda.synchronize()
    events = profiler.key_averages()
    return {event.key: 1e-6 * event.device_time_total / CALLS for event in events if event.device_time_total}


def seconds_by_kernel(found: ModelProfile) -> dict[str, float]:
    """Seconds in a call of the launches of each kernel."""
    seconds: dict[str, float] = defaultdict(float)
    for site in found.sites:
        seconds[site.site.kernel] += site.seconds
    return dict(seconds)


def assert_as_torch_profiler(found: ModelProfile, times: dict[str, float]) -> None:
    """Launches of at least 20 µs have the order and, within 5 %, the times that torch's profiler has measured."""
    seconds = seconds_by_kernel(found)
    generated = {name: times[name] for name in seconds if name in times}
    large = sorted((name for name in generated if generated[name] >= 20e-6), key=lambda name: -generated[name])
    assert len(large) >= 3
    for name in large:
        print(f"{name}: {1e6 * times[name]:.2f} µs, {1e6 * seconds[name]:.2f} µs")
    assert sorted(large, key=lambda name: -seconds[name]) == large
    for name in large:
        assert seconds[name] == pytest.approx(times[name], rel=0.05), name
    print(f"together: {1e6 * sum(times.values()):.2f} µs, {1e6 * found.launch_seconds:.2f} µs")
    assert found.launch_seconds == pytest.approx(sum(times.values()), rel=0.05)


def test_launches_are_those_of_torch_profiler(package: Path, times: dict[str, float], tmp_path: Path) -> None:
    found = profile(ProfileOptions(package, calls=CALLS, out=tmp_path))
    assert document(found)["clock"] == "device"
    assert all(site.seconds > 0 for site in found.sites)
    assert abs(found.sum_to_wall - 1) <= 0.02
    for call in found.calls:
        assert sum(call.launches_ns.values()) + call.gaps_ns == call.wall_ns
        assert call.gaps_ns > 0
    assert_as_torch_profiler(found, times)


def test_replays_of_a_cuda_graph(package: Path, times: dict[str, float], tmp_path: Path) -> None:
    found = profile(ProfileOptions(package, calls=CALLS, out=tmp_path, cuda_graph=True))
    told = document(found)
    assert (told["clock"], told["replays"], len(found.calls)) == ("device", True, CALLS)
    assert_as_torch_profiler(found, times)
    assert abs(found.sum_to_wall - 1) <= 0.02
    assert found.cost is not None
    assert found.cost.back_to_back is not None
    print(f"{found.cost}, a replay {1e6 * found.wall_seconds:.2f} µs, its launches {1e6 * found.launch_seconds:.2f} µs")
    assert found.launch_seconds == pytest.approx(found.cost.back_to_back, rel=0.02)
    assert found.wall_seconds == pytest.approx(found.cost.back_to_back, rel=0.02)


def test_replays_on_the_command_line(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    command = ["profile", str(package), "--cuda-graph", "--calls", "5", "--out", str(tmp_path), "--trace", str(trace)]
    assert main.run([*command, "--plot", "-o", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr().out
    print(out)
    assert "median of 5 replays" in out
    assert "where replays follow one another" in out
    assert trace.read_text().count('"cat": "call"') == 5
    assert "replays of a CUDA graph" in (tmp_path / "page.html").read_text()


def test_the_product_is_close_to_the_machine(package: Path, tmp_path: Path) -> None:
    found = profile(ProfileOptions(package, calls=CALLS, out=tmp_path))
    (product,) = (site for site in found.sites if site.work.contracts)
    assert product.work.flops == pytest.approx(2 * 4096**3, rel=0.01)
    assert product.placement is not None
    assert product.placement.bound.value == "compute"
    assert 0.3 < product.placement.share <= 1.05
    assert found.peaks.flops_of("bfloat16") > found.peaks.flops_of("float32") > 1e12
    assert found.peaks.bandwidth > 1e11
