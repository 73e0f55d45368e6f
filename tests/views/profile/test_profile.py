"""The profile of a run, as data, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.compare.modules import TimeShare
from aoti_debug.views.profile.model_profile import ModelProfile, document, hint
from aoti_debug.views.profile.profile import RunCalls, calls_of, times_of
from aoti_debug.views.profile.roofline import Bound, Peaks
from aoti_debug.views.profile.text import profile_lines, profile_lines_by_module
from aoti_debug.views.profile.trace import slices, trace_text
from tests.schema import DOCS, problems
from tests.views.profile import measured
from tests.views.profile.measured import profile_of

PEAKS = Peaks("a processor, 2 threads", 10e9, {"float32": 100e9})
WARM_UP = [(900_000, 1, 1)] * 3
SCHEMA = json.loads((DOCS / "profile.schema.json").read_text())


@pytest.fixture
def profile(tmp_path: Path) -> ModelProfile:
    run = measured.write(tmp_path, [*WARM_UP, (50_000, 10_000, 20_000), (60_000, 1_000, 2_000), (70_000, 4_000, 8_000)])
    return profile_of(Path("model.pt2"), run, PEAKS)


def test_sites_are_medians_of_the_calls(profile: ModelProfile) -> None:
    product, relu = profile.sites
    assert (product.site.kernel, product.count, product.launch.id) == ("aoti_torch_cpu_mm_out", 1, "3.0")
    assert product.seconds == pytest.approx(60e-6)
    assert product.samples == pytest.approx((50e-6, 60e-6, 70e-6))
    assert (relu.count, relu.seconds) == pytest.approx((2, 12e-6))
    assert profile.wall_seconds == pytest.approx(120e-6)
    assert profile.gap_seconds == pytest.approx(40e-6)
    assert product.share == pytest.approx(0.5)
    assert profile.sum_to_wall == pytest.approx(112 / 120)


def test_bytes_of_distinct_tensors(profile: ModelProfile) -> None:
    product, relu = profile.sites
    assert (product.work.read, product.work.written) == (4 * (4 * 16 + 16 * 8), 4 * 4 * 8)
    assert (relu.work.read, relu.work.written) == (2 * 4 * 32, 2 * 4 * 32)  # read and written, launched twice
    assert product.work.flops is None  # the run has no package, and so no graph


def test_places_below_the_roofline(profile: ModelProfile) -> None:
    placement = profile.sites[0].placement
    assert placement is not None
    assert placement.least_seconds == pytest.approx(896 / 10e9)
    assert placement.share == pytest.approx(placement.least_seconds / 60e-6)
    assert placement.bound is Bound.MEMORY  # not short enough for the cost of a launch
    short = profile.sites[1].placement
    assert short is not None
    assert short.bound is Bound.LAUNCH


def test_the_table(profile: ModelProfile) -> None:
    lines = profile_lines(profile, None, UNLIMITED)
    assert lines[0] == "model.pt2: 120.0 µs a call, 3 launches; median of 3 calls, after 3 to warm up"
    assert lines[1] == "  a processor, 2 threads: 10 GB/s, 100 GFLOP/s in float32"
    cells = lines[5].split()
    assert cells[:7] == ["0", "60.0", "µs", "50.0%", "1", "aoti_torch_cpu_mm_out", "model.py:12"]
    assert "together            112.0 µs  93.3% of a call" in lines
    assert lines[-1].startswith("note: the calls differ")
    assert "and 1 more launch of 12.0 µs together; --all shows them all" in profile_lines(profile, 1, UNLIMITED)
    narrow = profile_lines(profile, None, 80)[3:7]
    assert all(len(line) <= 80 for line in narrow)
    assert not any("hint" in line for line in narrow)


def test_modules_share_what_is_fused(profile: ModelProfile) -> None:
    linear, act, norm = profile.modules()
    assert (linear.name, linear.launches, linear.share) == ("layers.0.linear", 1, TimeShare(0.5, 0.5))
    assert (act.name, norm.name, act.launches) == ("layers.0.act", "layers.0.norm", 2)
    assert (act.share.least, act.share.most) == pytest.approx((0.0, 0.1))
    assert act.share.together == ("layers.0.norm",)
    assert norm.share.together == ("layers.0.act",)
    (whole,) = profile.modules(depth=1)
    assert (whole.share.least, whole.share.most) == pytest.approx((0.6, 0.6))
    lines = profile_lines_by_module(profile, None, UNLIMITED)
    assert [line.split()[-1] for line in lines[5:7]] == ["50.0%", "layers.0.norm"]
    assert "0.0\u201310.0%" in lines[6]
    assert document(profile, 1)["modules"] == [
        {
            "name": "layers",
            "launches": 3,
            "seconds": pytest.approx(72e-6),
            "share": {"least": pytest.approx(0.6), "most": pytest.approx(0.6), "together": []},
        }
    ]


def test_times_of_launches_for_a_table_of_errors(tmp_path: Path) -> None:
    run = measured.write(tmp_path, [*WARM_UP, *[(50_000, 10_000, 20_000)] * 2])
    times = times_of(run, calls_of(run, 3))
    assert [time.seconds for time in times.sites] == pytest.approx([50e-6, 30e-6])
    assert times.call == pytest.approx(120e-6)
    assert times.source.startswith("medians of 2 calls in a run that saves nothing, from the beginning to the end of")
    with pytest.raises(RunDirError, match="recorded no time of a call"):
        times_of(run, RunCalls(()))


def test_a_steady_run_has_no_note(tmp_path: Path) -> None:
    run = measured.write(tmp_path, [*WARM_UP, *[(50_000, 10_000, 20_000)] * 2])
    lines = profile_lines(profile_of(Path("model.pt2"), run, PEAKS), None, UNLIMITED)
    assert "together            120.0 µs  100.0% of a call" in lines
    assert not any(line.startswith("note:") for line in lines)


def test_json(profile: ModelProfile) -> None:
    found = document(profile)
    json.dumps(found, allow_nan=False)
    assert problems(found, SCHEMA) == []
    assert [launch["kernel"] for launch in found["launches"]] == ["aoti_torch_cpu_mm_out", "cpp_fused_relu_0"]
    assert found["launches"][0]["line"]["line"] == 12
    assert found["calls"][0] == {"call": 3, "wall": pytest.approx(120e-6), "gaps": pytest.approx(40e-6)}


def test_the_trace(tmp_path: Path, golden: Callable[[Path, str], None]) -> None:
    run = measured.write(tmp_path, [(900_000, 1_000, 1_000), (50_000, 10_000, 20_000)])
    text = trace_text(slices(run, warm_up=1), "model.pt2")
    golden(Path(__file__).parent / "trace.json", text)
    events = json.loads(text)["traceEvents"]
    calls = [event for event in events if event.get("cat") == "call"]
    for launch in (event for event in events if event.get("cat") == "launch"):
        assert any(c["ts"] <= launch["ts"] and launch["ts"] + launch["dur"] <= c["ts"] + c["dur"] for c in calls)


def test_a_run_without_measured_calls(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="recorded no launch of a measured call") as raised:
        profile_of(Path("model.pt2"), measured.write(tmp_path, WARM_UP), PEAKS)
    assert raised.value.hint


def test_the_host_waits_for_a_gpu(profile: ModelProfile) -> None:
    on_gpu = replace(profile, run=replace(profile.run, manifest=replace(profile.run.manifest, device="cuda")))
    assert document(on_gpu)["clock"] == "waited"
    assert "the host waited for the GPU at every launch" in "\n".join(profile_lines(on_gpu, None, UNLIMITED))


@pytest.mark.parametrize(("operator", "is_own"), [("mine::op.default", True), ("aten::addmm.out", False), ("", False)])
def test_an_operator_of_the_users_own_gets_no_hint_on_memory(operator: str, is_own: bool) -> None:
    site: Any = SimpleNamespace(placement=None, site=SimpleNamespace(op=operator))
    assert hint(site).startswith("an operator of your own") == is_own
