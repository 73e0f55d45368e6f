"""Packages whose launches are right: eager refuses the inputs, or rounds where kernels do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.corpus.case import CPU, Case, Example, Expected


class Accumulate(nn.Module):
    """Adds rows; a kernel takes a negative row from the end, eager refuses it."""

    def forward(self, table: Tensor, rows: Tensor, values: Tensor) -> Tensor:
        return torch.index_add(table, 0, rows, values).clamp_max(3.0)  # origin


class Spread(nn.Module):
    """The rows are computed, and taken out of a larger tensor."""

    def forward(self, table: Tensor, steps: Tensor, values: Tensor) -> Tensor:
        rows = steps.reshape(2, 4)[1, 1:] * 2 - 4
        return table.index_copy(0, rows, values) + 1.0  # origin


class Norm(nn.Module):
    """float16 has no 1e-9: eager divides by zero, a kernel computes in float32."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.var(dim=-1, keepdim=True) + 1e-9)  # origin


class Rounded(nn.Module):
    """What the program rounds to bfloat16 stays float32 in a kernel."""

    def forward(self, x: Tensor) -> Tensor:
        coarse = (x * 1.5).bfloat16().float()  # origin
        return (coarse * 3.0).sin() - x


def _accumulate(device: str) -> Example:
    good = (torch.zeros(6, 4), torch.tensor([0, 1, 5]), torch.ones(3, 4))
    bad = (good[0], torch.tensor([0, -1, 5]), good[2])
    return Example(Accumulate(), good, inputs=bad)


def _spread(device: str) -> Example:
    good = (torch.zeros(9, 4), torch.arange(8), torch.ones(3, 4))
    bad = (good[0], torch.tensor([0, 1, 2, 3, 4, 5, 1, 2]), good[2])
    return Example(Spread(), good, inputs=bad)


def _norm(device: str) -> Example:
    return Example(Norm(), (torch.full((3, 5), 1e-10, dtype=torch.float16),))


def _rounded(device: str) -> Example:
    return Example(Rounded(), (torch.linspace(0.1, 3, 64).reshape(4, 16),))


SETTING = "observed: with emulate_precision_casts=True "

CASES = (
    Case(
        "eager_refuses_an_index",
        _accumulate,
        Expected("refused_by_eager", inputs=("rows",), says=("rows[1] is -1, table has 6 rows", "raises RuntimeError")),
        CPU,
    ),
    Case(
        "eager_refuses_a_computed_index",
        _spread,
        Expected("refused_by_eager", inputs=("steps",), says=("is -2", "it was computed from steps[6] = 1")),
        CPU,
    ),
    Case(
        "eager_rounds_to_zero",
        _norm,
        Expected(
            "differs", says=(f"{SETTING}the outputs equal eager's", "aten.rsqrt.default (rsqrt)", "15 of 15 elements")
        ),
        CPU,
    ),
    Case(
        "cast_in_a_kernel",
        _rounded,
        Expected(
            "differs",
            says=(f"{SETTING}output 0 has a relative error of ", " rounded to bfloat16, 100 % of the difference of "),
        ),
        CPU,
    ),
)
