"""What is applied to a program that is lowered; operators and candidates that are left out. No GPU is needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor.compiler_bisector import CompilerBisector
from torch._inductor.decomposition import decompositions
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.virtualized import V
from torch._ops import OpOverload

from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol import build_failure
from aoti_debug.instrument.frontend.protocol.build_failure import BuildStage, Position
from aoti_debug.instrument.frontend.protocol.messages import Applied, LeftOut, TunedChoice
from aoti_debug.instrument.frontend.worker.parts_to_leave_out import (
    candidates_noted,
    choice_of,
    config_of,
    leaving_out,
    remaining,
)
from aoti_debug.instrument.frontend.worker.position_file import watched

RELU, SILU = torch.ops.aten.relu.default, torch.ops.aten.silu.default


def is_left_out(operator: OpOverload, *arguments: float) -> bool:
    """What Inductor is told when it is about to lower a call of an operator with a tensor and numbers."""
    graph = torch.fx.Graph()
    node = graph.call_function(operator, (graph.placeholder("x"), *arguments))
    with V.set_graph_handler(SimpleNamespace(current_node=node)):
        return bool(CompilerBisector.disable_subsystem("inductor", "lowerings", lambda: node.name))


def test_what_is_applied_is_written_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "applied.json"
    with leaving_out(LeftOut(lowerings=("aten.relu.default",), log=str(log))):
        for name in ("first", "second", "first"):
            assert not CompilerBisector.disable_subsystem("inductor", "joint_graph_passes", lambda name=name: name)
        decompositions[SILU](torch.ones(2))
        assert is_left_out(RELU)
        assert not is_left_out(torch.ops.aten.add.Tensor)
    applied = json_data.parse(Applied, log.read_bytes())
    assert applied == Applied(("first", "second"), ("aten.silu.default",), ("aten.relu.default", "aten.add.Tensor"))
    assert not is_left_out(RELU)


def test_a_decomposition_is_left_out() -> None:
    original = decompositions[SILU]
    with leaving_out(LeftOut(decompositions=("aten.silu.default",))):
        assert SILU not in decompositions
    assert decompositions[SILU] is original


@pytest.mark.parametrize(
    ("operator", "numbers"),
    [
        (torch.ops.aten.addmm.default, ()),  # beta and alpha, without a C shim
        (torch.ops.aten.div.Tensor, (10,)),  # a number in place of a tensor
    ],
)
def test_operators_that_cannot_be_called_as_they_are_are_lowered(
    tmp_path: Path, operator: OpOverload, numbers: tuple[float, ...]
) -> None:
    log = tmp_path / "applied.json"
    with leaving_out(LeftOut(lowerings=(str(operator),), log=str(log))):
        assert not is_left_out(operator, *numbers)
    assert json_data.parse(Applied, log.read_bytes()).lowerings == ()


KERNEL = SimpleNamespace(__name__="triton_poi_fused_0")
SMALL = SimpleNamespace(kwargs={"XBLOCK": 64}, num_warps=4, num_stages=1)
LARGE = SimpleNamespace(kwargs={"XBLOCK": 1024}, num_warps=8, num_stages=1)
CANDIDATE = TunedChoice("triton_poi_fused_0", "XBLOCK: 1024, num_warps: 8, num_stages: 1")
CHOICES = [SimpleNamespace(name="extern_mm", description=""), SimpleNamespace(name="cpp_gemm_0", description=None)]


def test_the_candidates_of_a_kernel_are_left_out_unless_none_were_left() -> None:
    def of_kernel(config: Any) -> TunedChoice:
        return config_of("triton_poi_fused_0", config)

    assert remaining([SMALL, LARGE], of_kernel, [CANDIDATE]) == [SMALL]
    assert remaining([LARGE], of_kernel, [CANDIDATE]) == [LARGE]
    assert remaining(CHOICES, choice_of, [TunedChoice("cpp_gemm_0", "")]) == CHOICES[:1]


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
    with watched(tmp_path, ()) as positions, candidates_noted(positions):
        CachingAutotuner._precompile_config(tuner, LARGE)
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
    with leaving_out(LeftOut(candidates=(CANDIDATE, TunedChoice("cpp_gemm_0", "")))):
        CachingAutotuner(KERNEL, {}, [SMALL, LARGE])
        selector.__new__(selector)("mm", CHOICES, [], None)
    assert seen == [[SMALL], CHOICES[:1]]
