"""Functions that kernels compute less exactly than they may: a lowering that is replaced, and Inductor's own ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor, nn

from aoti_debug.app.cli.main import group
from aoti_debug.compare.evaluate.rounding_errors import FUNCTION_BOUNDS

LOWERINGS = """
import torch
from torch._inductor.lowering import lowerings

_multiply = lowerings[torch.ops.aten.mul.Tensor]

def _off(right, factor):
    return lambda x: _multiply(right(x), factor)

for name, bound in {bounds}.items():
    operator = getattr(torch.ops.aten, name).default
    lowerings[operator] = _off(lowerings[operator], 1 + {multiple} * bound * 2.0**-23)
"""
NAMES = ("tanh", "exp", "log1p")


class Functions(nn.Module):
    """Three functions, each of which is an output, and what cancels behind one of them."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.tanh(), (-x).exp(), x.log1p(), 1 - x.tanh()


class Small(nn.Module):
    """Small numbers, multiplied by a large one."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh() * 1e6


class Erf(nn.Module):
    """A function that Inductor of torch 2.13 computes with an absolute error in vectors, and a sum that hides it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.erf(), 1 + x.erf()


def compared(model: nn.Module, x: Tensor, multiple: float, *words: str) -> Result:
    """The comparison of a model whose functions are off by a multiple of their bounds."""
    torch.export.save(torch.export.export(model, (x,)), "model.pt2")
    if multiple:
        bounds = {name: FUNCTION_BOUNDS[name].cpu for name in NAMES}
        Path("less_exact.py").write_text(LOWERINGS.format(bounds=bounds, multiple=multiple))
        words = ("--import", "less_exact", *words)
    return CliRunner().invoke(group, ["compare", "model.pt2", *words], prog_name="aoti-debug")


def outputs_of(result: Result) -> dict[str, dict[str, Any]]:
    """What was measured of each output, by its operator."""
    launches = json.loads(result.stdout)["launches"]
    return {output["operator"]: output for launch in launches for output in launch["outputs"]}


@pytest.mark.slow
def test_functions_off_by_three_times_their_bounds_are_wrong_in_every_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = torch.logspace(-37, 1.5, 1000)
    outputs = outputs_of(compared(Functions(), x, 3, "--json"))
    for name in NAMES:
        assert outputs[f"aten.{name}.default"]["wrong"] == 1000, name
    right = compared(Functions(), x, 0.5, "--json")
    assert right.exit_code == 0, right.output
    assert all(output["wrong"] == 0 for output in outputs_of(right).values())


@pytest.mark.slow
def test_the_function_is_named_and_not_what_is_done_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = torch.rand(64, generator=torch.Generator().manual_seed(0)) * 5e-8
    for multiple in (3, -(2.0**23) / FUNCTION_BOUNDS["tanh"].cpu):  # the second one makes it 0
        result = compared(Small(), x, multiple)
        assert result.exit_code == 1, result.output
        operators = [line for line in result.stdout.splitlines() if line.strip().startswith("operator")]
        assert "aten.tanh.default" in operators[0]


@pytest.mark.slow
def test_what_inductor_computes_wrongly_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = torch.cat([torch.logspace(-30, -3, 500), torch.linspace(0.01, 4, 500)])
    outputs = outputs_of(compared(Erf(), x, 0, "--json"))
    erf = outputs["aten.erf.default"]
    assert (erf["wrong"] == 0) == (erf["ulp_max"] <= FUNCTION_BOUNDS["erf"].cpu)  # a later torch may be right
    assert outputs["aten.add.Tensor"]["wrong"] == 0
