"""Programs after public reports of differences that are nobody's fault, or not the compiler's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CLEAN, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH


class Unsigned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.byte()  # culprit


class Exponents(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (torch.ceil(torch.log2(x.abs() + 1e-7)).clamp(-127, 127) + 127).to(torch.uint8)


class Least(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, size=[40, 40], mode="bicubic").squeeze(0).argmin(1)  # culprit


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, order = torch.sort(x, descending=True)  # culprit
        return values * 2, order


class Fractional(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.fractional_max_pool2d(x.tanh(), 3, output_size=(4, 4))


class Logit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.special.logit(x, eps=0.51)


class Amplified(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.layer_norm(x, (x.shape[-1],))
        return 1e-6 / (y.mean(-1) + 1e-12)  # culprit


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second = nn.Parameter(torch.randn(64, 96)), nn.Parameter(torch.randn(96, 48))
        self.bias, self.other = nn.Parameter(torch.randn(96)), nn.Parameter(torch.randn(48))

    def forward(self, x: Tensor) -> Tensor:
        return self.other + torch.mm((torch.mm(x, self.first) + self.bias).relu(), self.second)


class Empty(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.empty_like(x)  # culprit


class Poisson(nn.Module):
    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        return nn.functional.poisson_nll_loss(x, counts, full=True, eps=1e-10, reduction="none")


class Steps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linspace(0, 3, 101, dtype=torch.float16) * x


class Gradient(nn.Module):
    def forward(self, grad: Tensor, x: Tensor) -> Tensor:
        return torch.ops.aten.hardswish_backward(grad, x) + 1


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.conv, self.norm = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).mean((2, 3))


class Huge(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 1.0).sum(1)  # culprit


def _poisson() -> Example:
    torch.manual_seed(0)
    return Example(Poisson(), (torch.randn(6, 8, dtype=torch.float64) + 2, torch.randint(0, 32, (6, 8))))


def _gradient() -> Example:
    torch.manual_seed(0)
    return Example(Gradient(), (torch.randn(10, 20).bfloat16(), torch.randn(10, 20).bfloat16()))


def _huge() -> Example:
    x = torch.zeros(4, 64)
    x[:, 0::2], x[:, 1::2] = 3e38, -3e38
    x[1] = torch.cat([torch.full((32,), 3e38), torch.full((32,), -3e38)])
    return Example(Huge(), (x,))


def _normal(module: nn.Module, *shape: int, scale: float = 1.0) -> Example:
    torch.manual_seed(0)
    return Example(module, (torch.randn(*shape) * scale,))


def _exponents() -> Example:
    torch.manual_seed(0)
    return Example(Exponents(), (torch.cat([2.0 ** torch.randint(-20, 20, (300,)), torch.randn(201)]),))


def _least() -> Example:
    torch.manual_seed(0)
    return Example(Least(), (torch.rand(1, 40, 1, 1, dtype=torch.float64) * 10,))


REPORTS = (
    Report(
        131910,
        "negative numbers as bytes, which C++ does not define",
        lambda: _normal(Unsigned(), 20, scale=3.0),
        "",
        ("clean", "incomplete", "differs", "wrong_value"),
        (r"aten\._to_copy|convert_element_type",),
        (),
        BLAMES_TORCH,
    ),
    Report(
        179570,
        "logarithms are rounded up",
        _exponents,
        "",
        ("clean", "differs"),
        (),
        (),
        BLAMES_TORCH,
    ),
    Report(160840, "the least of equal numbers", _least, "", ("clean", "differs"), (), (), BLAMES_TORCH),
    Report(
        174459,
        "the order of equal numbers",
        lambda: Example(Sorted(), (torch.arange(24).reshape(3, 8) % 3,)),
        "differs",
        ("clean", "differs"),
        (),
        (),
        BLAMES_TORCH,
        plant="equal numbers in the other order",
    ),
    Report(183249, "windows that are drawn", lambda: _normal(Fractional(), 1, 3, 16, 16), "differs", CLEAN),
    Report(
        177839,
        "logit with limits that are the wrong way round",
        lambda: Example(Logit(), (torch.full((2, 35), 0.3),)),
        "",
        ("clean", "differs", "wrong_value"),
        (),
        (),
        BLAMES_TORCH,
    ),
    Report(
        181692,
        "what rounding leaves is divided by",
        lambda: _normal(Amplified(), 12, 37),
        "",
        ("clean", "differs"),
        (),
        (),
        BLAMES_TORCH,
    ),
    Report(178047, "products to which a bias is added", lambda: _normal(Products(), 32, 64, scale=9.0), "same", CLEAN),
    Report(
        113272,
        "memory that nothing has written is returned",
        lambda: _normal(Empty(), 6, 5),
        "",
        ("incomplete", "uninitialised", "differs", "nonfinite", "clean"),
        (),
        (),
        BLAMES_TORCH,
    ),
    Report(170745, "a loss of integers in float64", _poisson, "same", ("clean", "differs"), (), (), BLAMES_TORCH),
    Report(
        176720,
        "steps that float16 rounds otherwise",
        lambda: Example(Steps(), (torch.ones(101, dtype=torch.float16),)),
        "same",
        ("clean", "differs"),
        (),
        (),
        BLAMES_TORCH,
    ),
    Report(173054, "a gradient in bfloat16, and 1", _gradient, "", ("clean", "differs"), (), (), BLAMES_TORCH),
    Report(
        141317,
        "the mean of what is centred",
        lambda: _normal(Centred(), 1, 3, 32, 32),
        "differs",
        ("clean", "differs"),
        (),
        (),
        BLAMES_TORCH,
    ),
    Report(
        177657,
        "a sum of numbers that are nearly too large",
        _huge,
        "",
        ("nonfinite", "differs", "clean"),
        (),
        (),
        BLAMES_TORCH,
    ),
)
