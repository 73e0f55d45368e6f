"""A profile of a model on a GPU, beside torch's own profiler."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity

from aoti_debug.builder import build as builder
from aoti_debug.profile.document import document
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

    def forward(self, large: Tensor, medium: Tensor, small: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        return large.softmax(-1), medium.sum(0), (small.sin() + small).cumsum(-1), self.linear(rows)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uneven")
    torch.manual_seed(0)
    sizes = (16384, 8192), (4096, 4096), (512, 1024), (4096, 4096)
    inputs = tuple(torch.randn(*size, device="cuda") for size in sizes)
    with torch.no_grad():
        program = torch.export.export(Uneven().cuda().eval(), inputs)
        torch.export.save(program, folder / "model.pt2")
    return builder.build(folder / "model.pt2", output=folder / "model.instrumented.pt2")


def device_times(package: Path, program: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Microseconds of each kernel in a call, by torch's profiler, without any recording of ours."""
    monkeypatch.setenv("AOTI_DEBUG_LEVEL", "0")
    model = torch._inductor.aoti_load_package(str(package))
    args, kwargs = torch.export.load(program).example_inputs
    with torch.no_grad():
        for _ in range(3):
            model(*args, **kwargs)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(CALLS):
                model(*args, **kwargs)
            torch.cuda.synchronize()
    return {event.key: event.device_time_total / CALLS for event in profiler.key_averages() if event.device_time_total}


def test_launches_are_in_the_order_of_torch_profiler(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = profile(ProfileOptions(package, calls=CALLS, out=tmp_path))
    assert document(found)["clock"] == "waited"
    assert all(site.seconds > 0 for site in found.sites)
    assert abs(found.sum_to_wall - 1) <= 0.02
    for call in found.calls:
        assert sum(call.launches_ns.values()) + call.gaps_ns == call.wall_ns
    times = device_times(package, package.parent / "model.pt2", monkeypatch)
    generated = [site for site in found.sites if site.site.kernel in times]
    largest = [site for site in generated if times[site.site.kernel] > 20]  # µs: launching and waiting count less
    assert len(largest) >= 2
    names = [site.site.kernel for site in largest]
    assert names == sorted(names, key=lambda name: -times[name])
    for site in largest:
        assert site.seconds >= 0.9e-6 * times[site.site.kernel]
    waiting = [site.seconds - 1e-6 * times[site.site.kernel] for site in generated]
    assert statistics.median(waiting) < 50e-6


def test_the_product_is_close_to_the_machine(package: Path, tmp_path: Path) -> None:
    found = profile(ProfileOptions(package, calls=CALLS, out=tmp_path))
    (product,) = (site for site in found.sites if site.work.contracts)
    assert product.work.flops == pytest.approx(2 * 4096**3, rel=0.01)
    assert product.placement is not None
    assert product.placement.bound.value == "compute"
    assert 0.3 < product.placement.share <= 1.05
    assert found.peaks.flops_of("bfloat16") > found.peaks.flops_of("float32") > 1e12
    assert found.peaks.bandwidth > 1e11
