"""Programs after public reports of signed zeros, accuracy, dtypes, aliases, and checks that only eager makes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.operators import passed, widened
from benchmarks.triage.public_reports.report import CHANGED, CLEAN, REFUSED, Example, Report


class Ceiling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.ceil(x)
        y = y + torch.zeros_like(y)  # culprit
        return y.reciprocal()


class Lower(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.signbit(torch.minimum(x * 2, y))  # culprit


class Quantile(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.erfinv(x) * 1.5  # culprit


class Loss(nn.Module):
    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy(x.sigmoid(), target, reduction="none")  # culprit


class Scaled(nn.Module):
    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        return torch.ldexp(x, by) + 2048  # culprit


class Cleared(nn.Module):
    def forward(self, x: Tensor, part: Tensor) -> Tensor:
        y = torch.slice_scatter(x, part, 0, 1, 3)  # culprit
        x.zero_()
        return y


class LowestBit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1).view(torch.int32) & 1  # culprit


class Sampled(nn.Module):
    def forward(self, image: Tensor, grid: Tensor) -> Tensor:
        return nn.functional.grid_sample(image, grid, align_corners=False) + 1  # culprit


class Bins(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.div(x, 0.1, rounding_mode="floor") * 3  # culprit


class Passed(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin()
        z = passed(y)  # culprit
        return y + 1, z.flip(0) * 2


class Widened(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = widened(x)  # culprit
        return y.tanh() + x


class EmptyMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 4:4].mean(1) + x[:, 0]  # culprit


class Filled(nn.Module):
    def forward(self, values: Tensor, rows: Tensor) -> Tensor:
        y = torch.empty(12, 5)  # culprit
        y[rows] = values.sin()
        return y.sum(1)


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.second(self.first(x).relu())
        return y.float() + x[:, :16]


class Conjugate(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        y = (a * b).conj() / (b + 1)
        return y, y.abs().log()


class Margin(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - 1.7) > 0  # culprit


class Views(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.cos()
        even = y.view(-1)[::2]
        even.mul_(2)
        return y, even


def _filled() -> Example:
    torch.manual_seed(0)
    return Example(Filled(), (torch.randn(8, 5), torch.tensor([0, 1, 2, 3, 4, 5, 6, 11])))


def _conjugate() -> Example:
    torch.manual_seed(0)
    return Example(Conjugate(), (torch.randn(20, dtype=torch.complex64), torch.randn(20, dtype=torch.complex64)))


def _margin() -> Example:
    return Example(Margin(), (torch.tensor([1.703125, 1.6953125, 1.7109375, 0.5] * 8, dtype=torch.bfloat16),))


def _ceiling() -> Example:
    return Example(Ceiling(), (torch.tensor([-0.5, -0.1, 2.0, -0.9] * 6),))


def _lower() -> Example:
    x, y = torch.tensor([-0.0, 1.0, 2.0, 0.0] * 6), torch.tensor([0.0, 1.0, 2.0, -0.0] * 6)
    return Example(Lower(), (x, y))


def _quantile() -> Example:
    return Example(Quantile(), (torch.tensor([0.5, 0.99999994, 0.9999999, -0.99999994, 0.99, 0.1, 0.2, 0.3] * 4),))


def _loss() -> Example:
    torch.manual_seed(0)
    x, good = torch.randn(4, 5), torch.rand(4, 5)
    bad = good.clone()
    bad[1, 2] = 1.5
    return Example(Loss(), (x, good), (x, bad))


def _scaled() -> Example:
    torch.manual_seed(0)
    return Example(Scaled(), (torch.randn(30).half(), torch.arange(30) % 5 + 0.5))


def _cleared() -> Example:
    return Example(Cleared(), (torch.arange(24.0).reshape(4, 6), -torch.arange(12.0).reshape(2, 6)))


def _sampled() -> Example:
    torch.manual_seed(0)
    image, grid = torch.randn(1, 2, 6, 6), torch.rand(1, 4, 4, 2) * 2 - 1
    bad = grid.clone()
    bad[0, 1, 2, 0] = torch.inf
    return Example(Sampled(), (image, grid), (image, bad))


def _normal(module: nn.Module, *shape: int) -> Example:
    torch.manual_seed(0)
    return Example(module, (torch.randn(*shape),))


REPORTS = (
    Report(
        189799,
        "a zero is added to a negative zero",
        _ceiling,
        "nonfinite",
        ("nonfinite", *CHANGED),
        (r"aten\.add",),
        part="-ceiling",
    ),
    Report(194347, "the lesser of two zeros", _lower, "differs", CHANGED, (r"aten\.minimum",)),
    Report(198133, "erfinv near 1", _quantile, "same", CHANGED, (r"aten\.erfinv",)),
    Report(
        193757,
        "a target that eager refuses",
        _loss,
        "eager raises",
        REFUSED,
        (r"aten\.binary_cross_entropy",),
        ("target[1, 2]",),
    ),
    Report(197091, "ldexp has the dtype of its first argument", _scaled, "differs", CHANGED, (r"aten\.ldexp",)),
    Report(
        198094,
        "a result is written into an input, which is cleared",
        _cleared,
        "differs",
        CHANGED,
        (r"aten\.(slice_scatter|zero|fill|full|copy_)",),
    ),
    Report(
        0,
        "the lowest bit of a softmax",
        lambda: _normal(LowestBit(), 6, 37),
        "differs",
        ("differs",),
        (r"aten\.(_softmax|softmax|view)",),
        (),
        (r"lowering or fusion is likely wrong",),
        part="-lowest-bit",
    ),
    Report(
        0,
        "a grid that points to infinity",
        _sampled,
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.grid_sampler",),
        ("grid[0, 1, 2, 0]",),
        part="-grid",
    ),
    Report(
        0,
        "multiples are divided with floor",
        lambda: Example(Bins(), (torch.arange(0, 3, 0.1),)),
        "differs",
        CHANGED,
        (r"aten\.div",),
        part="-bins",
    ),
    Report(
        0,
        "an operator returns its argument",
        lambda: _normal(Passed(), 30),
        "differs",
        ("contract", *CHANGED),
        (r"public_reports(::|\.)passed",),
        part="-passed",
    ),
    Report(
        0,
        "an operator returns float64, its fake kernel float32",
        lambda: _normal(Widened(), 6, 9),
        "differs",
        ("contract", *CHANGED),
        (r"public_reports(::|\.)widened",),
        part="-widened",
    ),
    Report(
        0,
        "the mean of no elements",
        lambda: _normal(EmptyMean(), 6, 5),
        "nonfinite",
        ("nonfinite",),
        (r"aten\.mean",),
        part="-empty-mean",
    ),
    Report(
        0,
        "rows that are never written",
        _filled,
        "",
        ("uninitialised", "nonfinite", "incomplete", *CHANGED),
        (r"aten\.empty",),
        (),
        (r"lowering or fusion is likely wrong",),
        part="-rows",
    ),
    Report(0, "a model under autocast", lambda: _normal(Autocast(), 8, 32), "same", CLEAN, part="-under-autocast"),
    Report(0, "complex numbers that are conjugated", _conjugate, "same", CLEAN, part="-conjugated"),
    Report(
        185517,
        "a number is compared that bfloat16 rounds",
        _margin,
        "differs",
        CHANGED,
        (r"aten\.(sub|gt)|emulate_precision_casts",),
    ),
    Report(
        0, "a view is overwritten and returned", lambda: _normal(Views(), 6, 8), "same", CLEAN, part="-overwritten-view"
    ),
)
