"""torch.compile with the backend, end to end."""

from __future__ import annotations

import logging
import unittest
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from aoti_debug.app.torch_compile import backend, cached_build
from aoti_debug.app.torch_compile.backend import CompileOptions, aoti_debug, from_mapping
from aoti_debug.app.torch_compile.cached_build import CompilationDirectory, read_graphs
from aoti_debug.base.errors import UsageError
from aoti_debug.runs.rundir.load_tensors import load_file
from aoti_debug.runs.rundir.run_directory import open_run
from tests.app.torch_compile.graphs import traced


def test_defaults_and_values() -> None:
    assert from_mapping(None) == CompileOptions()
    chosen = from_mapping({"level": 1, "filter": "triton_*", "out": "here", "inductor_configs": {"freezing": True}})
    assert chosen == CompileOptions(1, "triton_*", inductor_configs={"freezing": True}, out=Path("here"))


@pytest.mark.parametrize(
    ("given", "text", "hint"),
    [
        ({"levels": 1}, "has no option 'levels'", "level, filter"),
        ({"level": 7}, "level 7 is not one of", "1 save"),
        ({"filter": ["triton_*"]}, "filter is", "in one text"),
        ({"inductor_configs": "max_autotune"}, "inductor_configs is", "max_autotune"),
        ({"out": 3}, "out is 3", "a directory"),
        ({"phase": "during"}, "phase is 'during'", "before"),
    ],
)
def test_wrong_options(given: dict[str, Any], text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        from_mapping(given)
    assert hint in caught.value.hint


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = torch.relu(self.linear(x))
        return y / (1 + y.sum(1, keepdim=True))


def test_the_entry_point() -> None:
    assert [found.load() for found in entry_points(group="torch_dynamo_backends") if found.name == "aoti_debug"] == [
        aoti_debug
    ]


@pytest.mark.slow
def test_training_with_sizes_that_change(tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Normalised()
    expected = Normalised()
    expected.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend=aoti_debug, dynamic=True, options={"level": 1, "out": tmp_path})
    for rows in (4, 6):
        gradients = []
        x = torch.randn(rows, 8)
        for called in (compiled, expected):
            given = x.clone().requires_grad_()
            called(given).square().sum().backward()
            gradients.append((given.grad, called.linear.weight.grad))
        torch.testing.assert_close(gradients[0], gradients[1])
    assert model.calls.item() == 2
    graphs = read_graphs(tmp_path / "latest")
    assert [(graph.name, graph.kind, graph.eager) for graph in graphs] == [
        ("graph0", "forward", ""),
        ("graph1", "backward", ""),
    ]
    first_line = Normalised.forward.__code__.co_firstlineno + 1
    assert f"test_backend.py:{first_line} in forward" in graphs[0].line
    for graph in graphs:
        run = open_run(tmp_path / "latest" / graph.name / "latest")
        assert {launch.key.call for launch in run.launches} == {0, 1}
        files = run.path.glob("tensors/*/*/*.safetensors")
        assert {load_file(file).shape[0] for file in files} >= {4, 6}


def test_a_graph_that_cannot_be_built_runs_in_eager(tmp_path: Path) -> None:
    torch._dynamo.reset()
    options = {"inductor_configs": {"no_such_setting": True}, "out": tmp_path}
    compiled = torch.compile(torch.sin, backend=aoti_debug, options=options)
    x = torch.randn(5)
    with unittest.TestCase().assertLogs("aoti_debug", logging.WARNING) as logged:
        assert torch.equal(compiled(x), x.sin())
        assert torch.equal(compiled(x + 1), (x + 1).sin())
    assert "a graph (inference" in logged.output[0]
    assert "no_such_setting" in logged.output[0]
    (graph,) = read_graphs(tmp_path / "latest")
    assert (tmp_path / "latest" / graph.name / "program.pt2").exists()  # which a triage takes
    assert "no_such_setting" in graph.eager


def decay(state: Tensor, x: Tensor) -> None:
    state.mul_(0.5).add_(x)


def test_a_package_overwrites_inputs_as_the_graph_does(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(decay, backend=aoti_debug, options={"level": 1, "out": tmp_path})
    state, expected = torch.zeros(5), torch.zeros(5)
    for number in (1.0, 2.0):
        x = torch.full((5,), number)
        compiled(state, x)
        decay(expected, x)
        assert torch.equal(state, expected)
    (graph,) = read_graphs(tmp_path / "latest")
    assert not graph.eager
    run = open_run(tmp_path / "latest" / graph.name / "latest")
    assert [launch.key.call for launch in run.launches] == [0, 1]


def test_what_is_written_to_a_copy_of_an_input_is_copied_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a package for CUDA does with an input that is not aligned."""
    x = torch.ones(3)
    graph = traced(decay, torch.zeros(3), x)["inference"]
    compiled = backend.CompiledGraph(graph, "inference", CompileOptions(), lambda: CompilationDirectory(tmp_path))
    called: list[bool] = []

    def package(tensors: Sequence[Tensor]) -> list[Tensor]:
        called.append(all(tensor.data_ptr() % 16 == 0 for tensor in tensors))
        decay(*(tensors if tensors[0] is not x else tensors[::-1]))
        return []

    monkeypatch.setattr(compiled, "_built", lambda _: package)
    for state in (torch.zeros(4)[1:], torch.zeros(4)[:3]):
        compiled([state, x] if compiled._inputs.overwritten == (0,) else [x, state])
        assert torch.equal(state, x)
    assert called == [True, True]


def test_a_graph_is_built_without_the_modes_of_its_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AOT autograd observes the first call with one; Inductor, where it has to work in this process, fails in it."""
    modes: list[int] = []

    def write_package(*_: Any) -> bool:
        modes.append(_len_torch_dispatch_stack())
        raise UsageError("it is not built here")

    monkeypatch.setattr(cached_build, "write_package", write_package)
    torch._dynamo.reset()
    x = torch.randn(5)
    assert torch.equal(torch.compile(torch.sin, backend=aoti_debug, options={"out": tmp_path})(x), x.sin())
    assert modes == [0]


def test_each_part_beside_a_graph_break_is_a_graph(tmp_path: Path) -> None:
    def parts(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    torch._dynamo.reset()
    options = {"inductor_configs": {"no_such_setting": True}, "out": tmp_path}
    x = torch.randn(5)
    assert torch.equal(torch.compile(parts, backend=aoti_debug, options=options)(x), x.sin().cos())
    lines = [graph.line for graph in read_graphs(tmp_path / "latest")]
    assert len(set(lines)) == len(lines) == 2
    assert all("in parts" in line or "in torch_dynamo_resume_in_parts" in line for line in lines)


def test_an_unknown_option() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no option 'levels'") as caught:
        torch.compile(torch.cos, backend=aoti_debug, options={"levels": 1})(torch.ones(2))
    assert isinstance(caught.value.__cause__ or caught.value, UsageError | torch._dynamo.exc.BackendCompilerFailed)
