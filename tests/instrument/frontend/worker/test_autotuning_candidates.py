"""Candidates of autotuning: noted while they are compiled or timed, and left out. No GPU, and nothing is compiled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

from aoti_debug.instrument.frontend.protocol import build_failure
from aoti_debug.instrument.frontend.protocol.build_failure import BuildStage, Position
from aoti_debug.instrument.frontend.protocol.inductor_parts import TunedChoice
from aoti_debug.instrument.frontend.worker import autotuning_candidates
from aoti_debug.instrument.frontend.worker.position_file import watched

KERNEL = SimpleNamespace(__name__="triton_poi_fused_0")
SMALL = SimpleNamespace(kwargs={"XBLOCK": 64}, num_warps=4, num_stages=1)
LARGE = SimpleNamespace(kwargs={"XBLOCK": 1024}, num_warps=8, num_stages=1)
CANDIDATE = TunedChoice("triton_poi_fused_0", "XBLOCK: 1024, num_warps: 8, num_stages: 1")
CHOICES = [SimpleNamespace(name="extern_mm", description=""), SimpleNamespace(name="cpp_gemm_0", description=None)]


def test_the_candidates_of_a_kernel_are_left_out_unless_none_were_left() -> None:
    def of_kernel(config: Any) -> TunedChoice:
        return autotuning_candidates.config_of("triton_poi_fused_0", config)

    assert autotuning_candidates.remaining([SMALL, LARGE], of_kernel, [CANDIDATE]) == [SMALL]
    assert autotuning_candidates.remaining([LARGE], of_kernel, [CANDIDATE]) == [LARGE]
    assert (
        autotuning_candidates.remaining(CHOICES, autotuning_candidates.choice_of, [TunedChoice("cpp_gemm_0", "")])
        == CHOICES[:1]
    )


@pytest.fixture
def selector() -> Any:
    """Inductor's class that chooses among kernels: its module takes a second to import."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    return AlgorithmSelectorCache


def test_what_is_compiled_and_timed_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selector: Any) -> None:
    seen: list[Position | None] = []

    def note(*_: Any) -> None:
        seen.append(build_failure.read_position(tmp_path))

    monkeypatch.setattr(CachingAutotuner, "_precompile_config", note)
    monkeypatch.setattr(CachingAutotuner, "bench", note)
    monkeypatch.setattr(selector, "benchmark_choice", classmethod(note))
    tuner: Any = SimpleNamespace(fn=KERNEL)
    with watched(tmp_path, ()) as positions, autotuning_candidates.noted(positions):
        CachingAutotuner._precompile_config(tuner, LARGE)  # type: ignore[arg-type]
        CachingAutotuner.bench(tuner, SimpleNamespace(config=LARGE))
        selector.benchmark_choice(CHOICES[1], None)
    configuration = CANDIDATE.configuration
    assert seen == [
        Position(BuildStage.TRITON, "triton_poi_fused_0", candidate=configuration),
        Position(BuildStage.AUTOTUNING, "triton_poi_fused_0", candidate=configuration),
        Position(BuildStage.AUTOTUNING, "cpp_gemm_0"),
    ]


def test_what_is_left_out_never_reaches_torch(monkeypatch: pytest.MonkeyPatch, selector: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(CachingAutotuner, "__init__", lambda self, fn, meta, configs, **_: seen.append(configs))
    monkeypatch.setattr(selector, "__call__", lambda self, name, choices, *_: seen.append(choices))
    with autotuning_candidates.leaving_out([CANDIDATE, TunedChoice("cpp_gemm_0", "")]):
        CachingAutotuner(KERNEL, {}, [SMALL, LARGE])  # type: ignore[call-arg]
        selector.__new__(selector)("mm", CHOICES, [], None)
    assert seen == [[SMALL], CHOICES[:1]]
