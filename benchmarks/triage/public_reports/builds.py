"""Programs after public reports of packages that torch does not build, or that stop as soon as they are called."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CLEAN, Example, Report

FAILURE = ("build_failure",)


class Minima(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cummin(x * 2, 1).values  # culprit


class Reduced(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x.scatter_reduce(1, index, x.exp(), "amax")  # culprit


class Constants(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        angle = torch.atan2(torch.ones(3, 3), torch.ones(3, 3))
        return torch.softmax(angle.log2().arccosh(), 1) + x  # culprit


class Cosine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cos(x).sum(1)  # culprit


class Floor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.floor(x * 3) + 1  # culprit


class Pool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool2d(x.relu(), 3, return_indices=True)[0]  # culprit


class Finite(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(torch.isinf(x), 0.0, x)  # culprit


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.conv = nn.Conv2d(2, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.ifft(self.conv(x), n=24).real


class Quotient(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.div(x, y, rounding_mode="trunc") + 1  # culprit


class Branches(nn.Module):
    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        def odd(t: Tensor) -> Tensor:
            view = t.transpose(0, 1)
            return view.scatter_add(1, view.long() % 4, view * 2).contiguous()

        def even(t: Tensor) -> Tensor:
            return (t.transpose(0, 1) - 3).contiguous()

        return torch.cond(flag.sum() > 0, odd, even, (x,))


def _batch() -> Example:
    torch.manual_seed(0)
    return Example(Branches(), (torch.randn(4, 6), torch.ones(2)))


def _quotient() -> Example:
    good = torch.full((40,), 100, dtype=torch.int32)
    bad, by = good.clone(), torch.full((40,), -1, dtype=torch.int32)
    bad[18] = -(2**31)
    return Example(Quotient(), (good, by), (bad, by))


def _normal(module: nn.Module, *shape: int) -> Example:
    torch.manual_seed(0)
    return Example(module, (torch.randn(*shape),))


def _reduced() -> Example:
    torch.manual_seed(0)
    return Example(Reduced(), (torch.randn(3, 8), torch.arange(24).reshape(3, 8) % 5))


REPORTS = (
    Report(
        188224,
        "the lowering of cummin asserts",
        lambda: _normal(Minima(), 4, 9),
        "no package",
        FAILURE,
        (r"aten\.cummin",),
        plant="cummin asserts",
    ),
    Report(
        188213,
        "the lowering of scatter_reduce asserts",
        _reduced,
        "no package",
        FAILURE,
        (r"aten\.scatter_reduce",),
        plant="scatter_reduce asserts",
    ),
    Report(
        188225,
        "a constant NaN is not comparable",
        lambda: _normal(Constants(), 3, 3),
        "no package",
        FAILURE,
        (r"aten\.(_softmax|softmax|amax|acosh)|prepare_softmax",),
    ),
    Report(
        181621,
        "a kernel uses a name that it does not declare",
        lambda: _normal(Cosine(), 12, 10),
        "no package",
        FAILURE,
        (r"aten\.cos",),
        plant="cos uses an undeclared name",
    ),
    Report(
        143568,
        "a kernel takes a vector for a mask",
        lambda: _normal(Floor(), 64),
        "no package",
        FAILURE,
        (r"aten\.floor",),
        plant="floor takes a vector for a mask",
    ),
    Report(
        136332,
        "the lowering of max_pool2d uses a name that it does not have",
        lambda: _normal(Pool(), 1, 2, 9, 9),
        "no package",
        FAILURE,
        (r"aten\.max_pool2d",),
        plant="no max_pool2d",
    ),
    Report(
        98237,
        "the lowering of isinf ends the process",
        lambda: _normal(Finite(), 20),
        "package dies",
        FAILURE,
        (r"aten\.isinf",),
        plant="isinf crashes",
    ),
    Report(
        166514,
        "an inverse Fourier transform",
        lambda: _normal(Spectrum(), 1, 2, 8, 16),
        "same",
        CLEAN,
    ),
    Report(
        184406,
        "the least integer divided by -1",
        _quotient,
        "package dies",
        ("fault",),
        (r"aten\.div",),
        ("x[18]", "y[18]"),
    ),
    Report(
        185482,
        "a branch that scatters into a view",
        _batch,
        "same",
        CLEAN,
    ),
)
