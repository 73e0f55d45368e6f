"""Guards on a CUDA device: the kernels, a Triton kernel that writes past its buffer, models that do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch import nn
from torch.library import triton_op, wrap_triton

from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.triage.memory_errors import overruns, uninitialised
from aoti_debug.triage.results.finding_kinds import OVERRUN, UNINITIALISED
from tests.built_model import Built, build_model
from tests.gpu.test_main_job import as_bytes, outputs_of
from tests.once import once

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

HERE = Path(__file__).resolve().parent
POISONS = (0xFF, 0x3B)


@triton.jit
def shifted_kernel(x, out, n, shift, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at + shift, tl.load(x + at, mask=at < n), mask=at < n)


@triton_op("guardstest::shifted", mutates_args={})
def shifted(x: torch.Tensor, shift: int) -> torch.Tensor:
    """Writes x `shift` elements further on: past the end, and not at the beginning."""
    out = torch.empty_like(x)
    wrap_triton(shifted_kernel)[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), shift, BLOCK=128)
    return out


class Shifting(nn.Module):
    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.ops.guardstest.shifted(x.sin(), self.shift)
        return (wide.cos() @ x.t()).relu()


@pytest.fixture(scope="session")
def shifting(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The model of this module, built once a session."""

    def make(folder: Path) -> Built:
        with torch.no_grad():
            program = torch.export.export(Shifting(3), (torch.randn(64, 64, device="cuda"),), strict=False)
        return build_model(program, folder, {}, __name__)  # it is imported where the model is lowered and run

    return once(tmp_path_factory, "cuda-shifting", make)


@pytest.mark.parametrize("level", [2, 3])
def test_a_kernel_that_writes_past_its_buffer_is_named(shifting: Built, tmp_path: Path, level: int) -> None:
    result = runner.run(RunOptions(shifting.package, level=level, out=tmp_path, guards=True, calls=2))
    assert result.verdict is None, "the write lands in memory that belongs to the process"
    found = overruns.find(result.run)
    assert found is not None
    assert found.kind is OVERRUN
    assert found.where is not None
    assert found.where.kernel == "shifted_kernel_0"
    assert found.where.element == 64 * 64
    assert found.where.launch.startswith("0.")
    assert "writes 12 bytes" in found.evidence[0]
    assert {damage.key.call for damage in result.run.timeline.damages} == {0, 1}
    assert {damage.damaged for damage in result.run.timeline.damages} == {12}


def test_what_the_shifted_kernel_leaves_unwritten_is_read(shifting: Built, tmp_path: Path) -> None:
    package = shifting.package
    runs = [
        runner.run(RunOptions(package, level=2, out=tmp_path, guards=True, poison=p)).run
        for p in (*POISONS, POISONS[0])
    ]
    for found in (uninitialised.find(Dataflow(runs[0]), *runs[1:2]), uninitialised.find(Dataflow(runs[0]), *runs[1:])):
        assert found is not None
        assert found.kind is UNINITIALISED
        assert found.origin is not None
        assert found.origin.kernel == "shifted_kernel_0"
        assert "3 of 4096 elements" in found.evidence[1]


@pytest.mark.parametrize("name", ["mixed", "loop", "dtypes", "reductions", "user_kernels"])
def test_no_false_alarm(build: Callable[[str], Built], tmp_path: Path, name: str) -> None:
    package = build(name).package
    runs = [
        runner.run(RunOptions(package, level=2, out=tmp_path, guards=True, poison=p)).run
        for p in (*POISONS, POISONS[0])
    ]
    for run in runs:
        assert overruns.find(run) is None
        assert [note.text for note in run.timeline.notes] == []
    assert uninitialised.find(Dataflow(runs[0]), runs[1]) is None
    assert uninitialised.find(Dataflow(runs[0]), *runs[1:]) is None


@pytest.mark.parametrize("name", ["mixed", "loop"])
def test_outputs_equal_the_plain_twins(
    build: Callable[[str], Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    built = build(name)
    plain = outputs_of(built, built.plain, tmp_path)
    monkeypatch.setenv("AOTI_DEBUG_GUARDS", "1")
    guarded = outputs_of(built, built.package, tmp_path)
    assert len(plain) == len(guarded)
    for one, other in zip(plain, guarded, strict=True):
        assert torch.equal(as_bytes(one), as_bytes(other))
        assert one.stride() == other.stride()
