"""Programs with several faults, complex numbers, other sizes than those of the export, bytes, and indices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CHANGED, CLEAN, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH


class Twice(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sin(x) @ w, torch.tanh(x * 1e-9) * 1e9  # culprit


class Bands(nn.Module):
    def forward(self, x: Tensor, low: Tensor) -> Tensor:
        return ((x > low) ^ (x < 1)) & (x != 0)  # culprit


class Ratios(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (torch.fft.fft(x) / torch.fft.fft(y)).abs()  # culprit


class Totals(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        y = (x @ w).relu()
        return y / y.sum(-1, keepdim=True)  # culprit


class Thumbnail(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, size=(9, 11), mode="bilinear", antialias=False)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.gate, self.experts = nn.Parameter(torch.randn(16, 6)), nn.Parameter(torch.randn(6, 16, 8))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk((x @ self.gate.bfloat16()).softmax(-1), 2)
        made = torch.einsum("ni,nkio->nko", x, self.experts.bfloat16()[chosen])
        return (made * weights.unsqueeze(-1)).sum(1)


class Logs(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.logcumsumexp(x, 0).exp()


class Highest(nn.Module):
    def forward(self, x: Tensor, index: Tensor, y: Tensor) -> Tensor:
        return torch.scatter_reduce(x, 0, index, y, "amax", include_self=False) * 2  # culprit


def _normal(module: nn.Module, *shapes: tuple[int, ...], scale: float = 1.0) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape) * scale for shape in shapes))


def _bands() -> Example:
    torch.manual_seed(0)
    return Example(Bands(), (torch.randn(4, 20) * 2, torch.zeros(20)))


def _ratios() -> Example:
    torch.manual_seed(0)
    y = torch.randn(4, 8)
    bad = y.clone()
    bad[2] = 0
    return Example(Ratios(), (torch.randn(4, 8), y), (torch.randn(4, 8), bad))


def _logs() -> Example:
    torch.manual_seed(0)
    x = torch.randn(6, 5)
    x[:2, 3] = -torch.inf
    return Example(Logs(), (x,))


def _highest() -> Example:
    torch.manual_seed(0)
    return Example(Highest(), (torch.full((5, 4), 3.0), torch.randint(0, 5, (6, 4)), torch.randn(6, 4)))


def _totals() -> Example:
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", min=2, max=64)
    x, w = torch.randn(5, 12), torch.randn(12, 37)
    return Example(Totals(), (x, w), (torch.randn(9, 12), w), dynamic=({0: rows}, None))


def _thumbnail() -> Example:
    torch.manual_seed(0)
    return Example(Thumbnail(), (torch.randint(0, 256, (1, 3, 16, 20), dtype=torch.uint8),))


def _experts() -> Example:
    torch.manual_seed(0)
    return Example(Experts(), (torch.randn(12, 16).bfloat16(),))


REPORTS = (
    Report(
        0,
        "a pass and a kernel are wrong",
        lambda: _normal(Twice(), (6, 12), (12, 5)),
        "differs",
        CHANGED,
        (r"aten\.(sin|tanh)",),
        part="-two-faults",
        plant="a loop and a pass are wrong",
    ),
    Report(
        0,
        "a decision by an exclusive or",
        _bands,
        "differs",
        CHANGED,
        (r"aten\.bitwise_xor",),
        part="-xor",
        plant="exclusive or is or",
    ),
    Report(
        0,
        "a quotient of complex numbers by zero",
        _ratios,
        "nonfinite",
        ("nonfinite",),
        (r"aten\.div",),
        part="-complex-zero",
    ),
    Report(
        0,
        "a sum leaves out its tail, of another size than that of the export",
        _totals,
        "differs",
        CHANGED,
        (r"aten\.sum",),
        part="-tail",
        plant="sums leave out the tail",
    ),
    Report(
        185894, "bytes of a smaller image", _thumbnail, "", ("clean", "incomplete", "differs"), (), (), BLAMES_TORCH
    ),
    Report(
        0,
        "experts that are chosen in bfloat16",
        _experts,
        "",
        ("clean", "differs"),
        (),
        (),
        BLAMES_TORCH,
        part="-experts",
    ),
    Report(
        0,
        "running sums that begin with the logarithm of 0",
        _logs,
        "same",
        CLEAN,
        part="-logcumsumexp",
    ),
    Report(
        0,
        "a largest number counts what was there",
        _highest,
        "differs",
        CHANGED,
        (r"aten\.scatter_reduce",),
        part="-scatter-reduce",
        plant="scatter_reduce keeps what was there",
    ),
)
