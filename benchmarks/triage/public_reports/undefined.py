"""Programs after public reports in which torch is right: they are random, undefined, or called with other inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.operators import doubled_in_place, jittered
from benchmarks.triage.public_reports.report import CLEAN, Example, Report

BLAMES_TORCH = (r"lowering or fusion is likely wrong", r"compilation may be wrong", r"Inductor changed the program")


class Dropped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.4) - 1


class Drawn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, torch.randn(12, x.shape[1])).argmax(1)


class Jittered(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return jittered(x.cos()) * 3  # culprit


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        mean = doubled_in_place(y)  # culprit
        return y.sum(1) + mean


class Unwritten(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.empty_strided((6, 5), (10, 2))  # culprit
        return torch.arccos(y) + x


class Rolled(nn.Module):
    def forward(self, matrices: Tensor, points: Tensor) -> Tensor:
        return (matrices * points.unsqueeze(1)).sum(2)


class Trapezoid(nn.Module):
    def forward(self, y: Tensor, at: Tensor) -> Tensor:
        return torch.cumulative_trapezoid(y, at.expand_as(y), dim=-1)


class Rows(nn.Module):
    def forward(self, x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
        y = x.tanh()
        y[rows] = values
        return y


def _normal(module: nn.Module, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape).to(dtype) for shape in shapes))


def _rolled() -> Example:
    torch.manual_seed(0)
    given = torch.randn(9, 3, 4), torch.randn(9, 4)
    return Example(Rolled(), given, (torch.randn(9, 4, 3).transpose(1, 2), given[1]))


def _rows() -> Example:
    torch.manual_seed(0)
    return Example(Rows(), (torch.randn(7, 30), torch.tensor([2, 4, 2, 6]), torch.randn(4, 30)))


REPORTS = (
    Report(141557, "a dropout that is always on", lambda: _normal(Dropped(), (5, 24)), "differs", CLEAN),
    Report(151525, "random numbers that the model draws", lambda: _normal(Drawn(), (30, 40)), "differs", CLEAN),
    Report(
        118735,
        "an operator that adds random numbers",
        lambda: _normal(Jittered(), (6, 9)),
        "differs",
        ("differs", "incomplete"),
        (r"public_reports(::|\.)jittered",),
        (),
        (*BLAMES_TORCH, r"moves by 1 ULP"),
    ),
    Report(
        129372,
        "an operator overwrites an argument that it does not declare",
        lambda: _normal(Doubled(), (6, 9)),
        "differs",
        ("differs", "contract"),
        (r"public_reports(::|\.)doubled_in_place.* overwrites its argument x",),
        (),
        BLAMES_TORCH,
    ),
    Report(
        149399,
        "memory that nothing has written",
        lambda: _normal(Unwritten(), (6, 5)),
        "differs",
        ("nonfinite", "uninitialised", "differs"),
        (r"aten\.empty_strided.* read before it is written",),
        (),
        BLAMES_TORCH,
    ),
    Report(
        122784,
        "an input with other strides than that of the export",
        _rolled,
        "differs",
        ("contract",),
        (r"input 0 \(matrices\)",),
        (),
        BLAMES_TORCH,
    ),
    Report(
        185596,
        "a sum of trapezoids in bfloat16",
        lambda: _normal(Trapezoid(), (6, 4, 16), (16,), dtype=torch.bfloat16),
        "same",
        CLEAN,
    ),
    Report(55516, "rows that are written twice", _rows, "same", CLEAN),
)
