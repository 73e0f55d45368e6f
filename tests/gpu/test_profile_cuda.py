"""A profile of a model on a GPU: launches, kernels and their order, beside torch's own profiler; no times.

`python -m benchmarks.performance.profile_accuracy --device cuda` compares the times.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity

from aoti_debug.app.cli import main
from aoti_debug.package.manifest import Kind
from aoti_debug.runs.rundir.run_json import CallPurpose
from aoti_debug.runs.show.calls_and_replays import calls_text, purpose_of
from aoti_debug.views.profile.model_profile import ModelProfile, document
from aoti_debug.views.profile.profile import WARM_UP, ProfileOptions, profile
from tests.built_model import Built

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CALLS = 5
GENERATED = "triton_"


@pytest.fixture(scope="module")
def uneven(build: Callable[[str], Built]) -> Built:
    return build("uneven")


@pytest.fixture(scope="module")
def generated(uneven: Built) -> list[str]:
    """The generated kernels of a call of the plain package in their order, by torch's profiler."""
    model = torch._inductor.aoti_load_package(str(uneven.plain))
    args, kwargs = torch.export.load(uneven.program).example_inputs
    with torch.no_grad():
        model(*args, **kwargs)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
            model(*args, **kwargs)
            torch.cuda.synchronize()
    events = sorted(profiler.events(), key=lambda event: event.time_range.start)
    return [event.name for event in events if event.name.startswith(GENERATED)]


@pytest.fixture(scope="module")
def of_calls(uneven: Built, tmp_path_factory: pytest.TempPathFactory) -> ModelProfile:
    return profile(ProfileOptions(uneven.package, calls=CALLS, out=tmp_path_factory.mktemp("calls")))


@pytest.fixture(scope="module")
def of_replays(uneven: Built, tmp_path_factory: pytest.TempPathFactory) -> ModelProfile:
    out = tmp_path_factory.mktemp("replays")
    return profile(ProfileOptions(uneven.package, calls=CALLS, out=out, cuda_graph=True))


def assert_consistent(found: ModelProfile, generated: list[str]) -> None:
    """One record: the kernels of each call or replay, in order, within it, and their sums."""
    assert found.on_device is not None
    assert len(found.calls) == len(found.on_device) == CALLS
    launched = Counter(name for name in generated)
    sites = {site.site.kernel: site for site in found.sites if site.site.kind is Kind.TRITON}
    assert {name: site.count for name, site in sites.items()} == launched
    others = [site for site in found.sites if site.site.kernel not in launched]
    assert [site.site.kernel for site in others] == ["aoti_torch_cuda_addmm_out"]
    for device, call in zip(found.on_device, found.calls, strict=True):
        assert [work.activity.name for work in device.works if work.activity.name.startswith(GENERATED)] == generated
        for work in device.works:
            assert device.begin_ns <= work.activity.begin_ns
            assert work.activity.end_ns <= device.end_ns
            assert 0 <= work.own_ns <= work.activity.duration_ns
            if work.activity.name.startswith(GENERATED):
                assert work.launch is not None
                assert work.launch.kernel == work.activity.name
        begins = [work.activity.begin_ns for work in device.works]
        assert begins == sorted(begins)
        assert call.wall_ns == device.end_ns - device.begin_ns
        assert call.gaps_ns >= 0
        assert sum(call.launches_ns.values()) + call.gaps_ns == call.wall_ns
    for earlier, later in zip(found.on_device, found.on_device[1:], strict=False):
        assert earlier.end_ns <= later.begin_ns
    assert found.wall_seconds == pytest.approx(1e-9 * statistics.median(call.wall_ns for call in found.calls))
    for site in found.sites:
        times = [call.launches_ns[site.site.id] for call in found.calls]
        assert site.seconds == pytest.approx(1e-9 * statistics.median(times))
        assert site.seconds > 0


def test_calls(of_calls: ModelProfile, generated: list[str]) -> None:
    told = document(of_calls)
    assert (told["clock"], told["replays"]) == ("device", False)
    assert_consistent(of_calls, generated)
    assert of_calls.cost is not None
    assert min(of_calls.cost.profiled, of_calls.cost.unprofiled) > 0
    assert of_calls.cost.back_to_back is None


def test_calls_that_nobody_asked_for(of_calls: ModelProfile, of_replays: ModelProfile) -> None:
    run = of_calls.run
    assert run.info.calls == CALLS
    assert calls_text(run) == (
        f"{WARM_UP + 2 * CALLS} calls, of which aoti-debug made {WARM_UP} to warm up and {CALLS} without the profiler"
    )
    asked = [call.call for call in run.timeline.calls if purpose_of(run, call) is None]
    assert asked == [call.call for call in of_calls.calls]
    run = of_replays.run
    assert run.info.calls == CALLS
    purposes = [purpose_of(run, call) for call in run.timeline.calls]
    assert purposes == [*[CallPurpose.WARM_UP] * WARM_UP, CallPurpose.CAPTURED, CallPurpose.ATTRIBUTED]
    assert [call.capturing for call in run.timeline.calls] == [p is CallPurpose.CAPTURED for p in purposes]


def test_replays(of_replays: ModelProfile, generated: list[str]) -> None:
    told = document(of_replays)
    assert (told["clock"], told["replays"]) == ("device", True)
    assert [call.call for call in of_replays.calls] == list(range(1, CALLS + 1))
    assert_consistent(of_replays, generated)
    assert of_replays.cost is not None
    assert of_replays.cost.back_to_back is not None
    assert of_replays.cost.back_to_back > 0
    assert of_replays.on_device is not None
    for replay in of_replays.on_device:  # it lasts from its first kernel to the end of its last
        assert replay.begin_ns == replay.works[0].activity.begin_ns
        assert replay.end_ns == max(work.activity.end_ns for work in replay.works)


def test_replays_on_the_command_line(uneven: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    command = ["profile", str(uneven.package), "--cuda-graph", "--calls", "5", "--out", str(tmp_path)]
    assert main.run([*command, "--trace", str(trace), "--plot", "-o", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr().out
    print(out)
    assert "median of 5 replays" in out
    assert "where replays follow one another" in out
    assert trace.read_text().count('"cat": "call"') == 5
    assert "replays of a CUDA graph" in (tmp_path / "page.html").read_text()


def test_the_product_of_large_matrices(of_calls: ModelProfile) -> None:
    (product,) = (site for site in of_calls.sites if site.work.contracts)
    assert product.work.flops == pytest.approx(2 * 4096**3, rel=0.01)
    assert product.placement is not None
    assert product.placement.bound.value == "compute"
    assert product.placement.share > 0
    assert of_calls.peaks.flops.keys() >= {"float32", "bfloat16", "float16"}
