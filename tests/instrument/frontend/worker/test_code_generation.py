"""The operators whose code is generated when code generation fails: planted faults name the right ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import index_propagation, ir, scheduler
from torch._inductor.codegen import cpp, cpp_wrapper_cpu, wrapper
from torch._inductor.loop_body import LightTracer

from aoti_debug.instrument.frontend.protocol import build_failure
from aoti_debug.instrument.frontend.protocol.build_failure import BuildStage, Position
from aoti_debug.instrument.frontend.worker import code_generation
from aoti_debug.instrument.frontend.worker.position_file import watched

pytestmark = pytest.mark.slow


class Model(nn.Module):
    """A product with a kernel after it, and a function of three more: one has an index, two are fused."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(40, 32))

    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        y = torch.erf((x @ self.table.T).relu())
        return (torch.sin(y) - 2.5).sum(1), self.table[rows] * 3, x.exp(), x.cos()


PROGRAM = torch.export.export(Model(), (torch.ones(8, 32), torch.ones(5, dtype=torch.int64)))


class PlantedError(Exception):
    """A planted fault."""


def at_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[tuple[Any, str]]
) -> tuple[Position | None, Position | None]:
    """The position while a method of Inductor is at work, which a crash leaves, and after it has raised."""
    seen = []

    def fail(*_: Any, **__: Any) -> Any:
        seen.append(build_failure.read_position(tmp_path))
        raise PlantedError

    for owner, name in faults:
        is_static = isinstance(owner.__dict__.get(name), staticmethod)
        monkeypatch.setattr(owner, name, staticmethod(fail) if is_static else fail)
    with (
        pytest.raises(Exception, match="PlantedError"),
        watched(tmp_path, PROGRAM.graph.nodes) as positions,
        code_generation.noted(positions),
    ):
        torch._inductor.aoti_compile_and_package(
            PROGRAM,
            package_path=str(tmp_path / "model.pt2"),
            inductor_configs={"aot_inductor.package_cpp_only": True, "fx_graph_cache": False},
        )
    return seen[0], build_failure.read_position(tmp_path)


VECTORS, SCALARS = cpp.CppVecOverrides, cpp.CppOverrides
SUM = {"relu", "erf", "sin", "sub", "sum_1"}
FUSED = {"exp", "cos"}
GROUP = {*SUM, *FUSED, "index", "mul"}
FAULTS = {
    "an operation of vectors": ([(VECTORS, "erf")], "erf", SUM),
    "an operation of numbers": ([(VECTORS, "sin"), (SCALARS, "sin")], "sin", SUM),
    "a step of a fused kernel": ([(VECTORS, "cos"), (SCALARS, "cos")], "cos", FUSED),
    "a reduction": ([(cpp.CppKernel, "reduction"), (cpp.CppVecKernel, "reduction")], "sum_1", SUM),
    "indexing": ([(index_propagation.IndexPropagation, "indirect_indexing")], "index", {"index", "mul"}),
    "the loops of an operation": ([(ir.ComputedBuffer, "simplify_and_reorder")], "", SUM),
    "fusion": ([(scheduler.Scheduler, "fuse_two_nodes")], "", FUSED),
    "the end of a kernel": ([(cpp.KernelGroup, "finalize_kernel")], "", SUM),
    "a function of several kernels": ([(cpp.CppScheduling, "define_kernel")], "", GROUP),
    "the call of a function": ([(wrapper.KernelCallLine, "codegen")], "", GROUP),
    "the call of an operator": ([(wrapper.ExternKernelOutLine, "codegen")], "", {"mm", "permute"}),
    "memory planning": ([(wrapper.AllocateLine, "plan")], "", {"mm", "permute"}),
    "the wrapper's beginning": ([(cpp_wrapper_cpu.CppWrapperCpu, "finalize_prefix")], "", set()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_names_the_operators_whose_code_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    places, node, nodes = FAULTS[fault]
    during, after = at_the_fault(tmp_path, monkeypatch, places)
    assert during == after
    assert after is not None
    assert (after.stage, after.node, set(after.nodes)) == (BuildStage.CODE, node, nodes)


def test_torch_stays_as_it_was(tmp_path: Path) -> None:
    owners = (scheduler.Scheduler, scheduler.SchedulerNode, ir.IRNode, LightTracer, wrapper.AllocateLine)
    before = [dict(vars(owner)) for owner in owners]
    with watched(tmp_path, ()) as positions, code_generation.noted(positions):
        assert [dict(vars(owner)) for owner in owners] != before
    assert [dict(vars(owner)) for owner in owners] == before


def test_a_torch_without_some_classes_is_watched_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = code_generation._class
    missing = {"Loops", "LightTracer", "WrapperLine", "SchedulerNode", "BaseSchedulerNode"}
    found = {name: original("no_such_module", name) for name in missing}
    monkeypatch.setattr(code_generation, "_class", lambda module, name: found.get(name) or original(module, name))
    during, after = at_the_fault(tmp_path, monkeypatch, [(VECTORS, "erf")])
    assert during == after == Position(BuildStage.CODE)
