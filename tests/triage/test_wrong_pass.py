"""A triage of a program that a graph pass of Inductor has changed: its kernels compute what they were made for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from aoti_debug.app.cli.main import group
from tests.corpus.case import origin_lines

pytestmark = pytest.mark.slow

PASS = """
import torch
import torch._inductor.config


def sigmoid_for_tanh(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.tanh.default:
            node.target = torch.ops.aten.sigmoid.default


torch._inductor.config.post_grad_custom_post_pass = sigmoid_for_tanh
"""


class Chain(nn.Module):
    """A state that is overwritten in each call, and an operator that a pass replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.count.add_(1)
        bent = self.linear(x).tanh()  # origin
        return bent.softmax(-1) + self.count, x.sin()


class Routed(nn.Module):
    """A router before training: which of its equal numbers `topk` chooses, and so all of the output, is open."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 8)
        nn.init.zeros_(self.router.weight)
        nn.init.zeros_(self.router.bias)
        self.experts = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.experts[self.router(x).topk(2).indices].sum(1)
        return (x * chosen).tanh() * chosen  # origin


def test_a_choice_that_is_open_does_not_hide_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    (tmp_path / "sigmoid_for_tanh.py").write_text(PASS)
    with torch.no_grad():
        torch.export.save(torch.export.export(Routed().eval(), (torch.randn(4, 8),)), tmp_path / "model.pt2")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(group, ["triage", "model.pt2", "--import", "sigmoid_for_tanh", "--json"])
    assert result.exit_code == 1, result.output
    finding = json.loads(result.stdout)
    assert (finding["kind"], finding["origin"]["operator"]) == ("wrong_value", "aten.tanh.default")
    (line,) = origin_lines(Routed())
    assert finding["origin"]["line"] == line.line


def test_the_operator_and_its_line_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    (tmp_path / "sigmoid_for_tanh.py").write_text(PASS)
    with torch.no_grad():
        torch.export.save(torch.export.export(Chain().eval(), (torch.randn(4, 8),)), tmp_path / "model.pt2")
    monkeypatch.chdir(tmp_path)
    command = ["triage", "model.pt2", "--import", "sigmoid_for_tanh", "--calls", "2", "--json"]
    result = CliRunner().invoke(group, command)
    assert result.exit_code == 1, result.output
    finding = json.loads(result.stdout)
    assert finding["kind"] == "wrong_value"
    assert finding["what"].startswith("output 0 has a relative error of ")
    assert finding["launch"] is None
    assert finding["origin"]["operator"] == "aten.tanh.default"
    (line,) = origin_lines(Chain())
    assert (finding["origin"]["file"], finding["origin"]["line"]) == (str(line.file), line.line)
    assert any("it has no value like that of tanh = aten.tanh.default(" in said for said in finding["evidence"])
    assert finding["next"] == ["aoti-debug bisect model.pt2 --settings --import sigmoid_for_tanh --calls 2"]
    (folder,) = (path for path in (tmp_path / "aoti-debug/triages").iterdir() if not path.is_symlink())
    assert not [path.name for path in folder.iterdir() if "outputs" in path.name]


LOWERING = """
from torch._inductor import lowering
from torch._inductor.virtualized import ops
import torch

right = lowering.lowerings[torch.ops.aten.argmax.default]


def without_nan(x, *args, **keywords):
    number = lowering.make_pointwise(lambda a: ops.where(ops.eq(a, a), a, ops.constant(-1e30, x.get_dtype())))(x)
    return right(number, *args, **keywords)


lowering.lowerings[torch.ops.aten.argmax.default] = without_nan
"""


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.argmax(x * 2, 1)  # origin


def test_a_wrong_launch_is_found_beside_nan_that_comes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "argmax_without_nan.py").write_text(LOWERING)
    x = torch.arange(24.0).reshape(3, 8)
    x[1, 3] = torch.nan
    torch.export.save(torch.export.export(Largest(), (x,)), tmp_path / "model.pt2")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(group, ["triage", "model.pt2", "--import", "argmax_without_nan", "--json"])
    assert result.exit_code == 1, result.output
    finding = json.loads(result.stdout)
    (line,) = origin_lines(Largest())
    assert finding["kind"] == "wrong_value"
    assert (finding["file"], finding["line"]) == (str(line.file), line.line)
    (other,) = finding["also"]
    assert (other["kind"], other["input"], other["element"]) == ("nonfinite", "x", 11)


class Reached(nn.Module):
    """Decides by sums that are about 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(1).sum(1) >= 1.0


def test_truth_values_that_rounding_decides_are_no_wrong_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    torch.export.save(torch.export.export(Reached(), (torch.randn(200, 11),)), tmp_path / "model.pt2")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(group, ["triage", "model.pt2", "--json"])
    finding = json.loads(result.stdout)
    assert finding["kind"] == "differs", "the kernel sums in another order"
    assert finding["what"].startswith("output 0: ")
    assert not any("decomposition" in said for said in finding["evidence"])
