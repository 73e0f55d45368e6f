"""torch.compile with the backend, and one call from Python, on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aoti_debug
from aoti_debug.app.torch_compile.backend import aoti_debug as backend
from aoti_debug.app.torch_compile.cached_build import read_graphs
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.runs.rundir.run_directory import open_run

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.linear(x))
        return y / (1 + y.sum(1, keepdim=True))


class OrderOfEqualElements(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.argsort((x * 2).round(), 0) * 2


def test_forward_and_backward(tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Normalised().cuda()
    compiled = torch.compile(model, backend=backend, options={"level": 1, "out": tmp_path})
    x = torch.randn(32, 64, device="cuda")
    found = []
    for called in (compiled, model):
        given = x.clone().requires_grad_()
        called(given).square().sum().backward()
        found.append(given.grad)
    torch.testing.assert_close(*found)
    torch.cuda.synchronize()
    graphs = read_graphs(tmp_path / "latest")
    assert [(graph.kind, graph.eager) for graph in graphs] == [("forward", ""), ("backward", "")]
    for graph in graphs:
        run = open_run(tmp_path / "latest" / graph.name / "latest")
        assert any(launch.kernel.startswith("triton_") for launch in run.launches)
        assert any(run.path.glob("tensors/*/*/*_cuda:0.safetensors"))


@pytest.mark.parametrize("begins", [0, 1], ids=["aligned", "unaligned"])
def test_an_input_that_is_overwritten(tmp_path: Path, begins: int) -> None:
    def decay(state: Tensor, x: Tensor) -> Tensor:
        state.mul_(0.5).add_(x)
        return state.sum()

    torch._dynamo.reset()
    compiled = torch.compile(decay, backend=backend, options={"level": 1, "out": tmp_path})
    state, expected = torch.zeros(65, device="cuda")[begins : begins + 64], torch.zeros(64, device="cuda")
    for number in (1.0, 2.0):
        x = torch.full((64,), number, device="cuda")
        torch.testing.assert_close(compiled(state, x), decay(expected, x))
        assert torch.equal(state, expected)
    assert [graph.eager for graph in read_graphs(tmp_path / "latest")] == [""]


def test_one_call_and_what_is_computed_from_the_indices_of_equal_elements(tmp_path: Path) -> None:
    result = aoti_debug.debug(OrderOfEqualElements(), torch.randn(12, 40, device="cuda"), out=tmp_path)
    assert result.verdict is None
    assert result.outputs.shape == (12, 40)
    assert str(result).startswith("NO FAULT ")
    comparison = compare(CompareOptions(model=result.package, out=tmp_path / "compare"))
    assert comparison.first_wrong is None
    assert comparison.coverage.compared
