"""Programs from fields that other reports leave out: loops, complex numbers, optimizers, losses, attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from benchmarks.triage.public_reports.operators import unit_rows
from benchmarks.triage.public_reports.report import CHANGED, CLEAN, Example, Report


class Filtered(nn.Module):
    def forward(self, x: Tensor, gains: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x.tanh())
        return torch.fft.irfft(spectrum * gains, n=x.shape[-1]) + x


class Correlated(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        product = torch.fft.fft(x.cos()) * torch.fft.fft(y.sin()).conj()  # culprit
        return torch.fft.ifft(product).real * 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.cell = nn.GRU(5, 7, num_layers=2, batch_first=True)
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.cell(x)
        return self.head(states[:, -1])


class Gate(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        gate = torch.sigmoid(x)  # culprit
        return (gate * w).sum(1)


class Momentum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.linspace(0, 1, 6))
        self.register_buffer("second", torch.linspace(-1, 1, 12).reshape(3, 4))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        states = [self.first, self.second]
        torch._foreach_mul_(states, 0.9)
        torch._foreach_add_(states, [a, b], alpha=0.1)  # culprit
        return self.first * 2, self.second.sum(0)


class Looped(nn.Module):
    def forward(self, count: Tensor, x: Tensor) -> Tensor:
        _, y = while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, torch.tanh(y) * 0.5), (count, x))  # culprit
        return y * 1e6


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: torch.log(x), lambda x: x.cos(), (x,))  # culprit
        return y.tanh() + 1


class Scanned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        last, all_states = scan(lambda c, x: ((c * 0.5 + x).tanh(), c * x), torch.zeros(3), x)
        return all_states.sum(0) + last


class DroppedAndSquashed(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return nn.functional.dropout(x.exp(), 0.3), torch.tanh(x * 1e-9) * 1e9  # culprit


class Hits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        hits = x[x > 0.2]
        return torch.cumsum(hits * 2, 0).cos()  # culprit


class Limited(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x * 2, -1.0, 1.0) + 0.5  # culprit


class Views(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y = x.sinh()
        return y, y[1], y.t(), x.view(-1)


class Ignored(nn.Module):
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, targets) * 2  # culprit


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).mean(1)  # culprit


class Units(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return unit_rows(x.relu()) @ x.t()  # culprit


def _normal(module: nn.Module, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, **more: Any) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape).to(dtype) for shape in shapes), **more)


def _filtered() -> Example:
    torch.manual_seed(0)
    return Example(Filtered(), (torch.randn(3, 32), torch.linspace(1, 0, 17).to(torch.complex64) * (1 + 0.5j)))


def _gate() -> Example:
    torch.manual_seed(0)
    x = torch.randn(4, 24)
    bad = x.clone()
    bad[2, 7] = 250.0
    return Example(Gate(), (x, torch.randn(24)), (bad, torch.randn(24)))


def _branch() -> Example:
    x = torch.arange(1.0, 19.0).reshape(3, 6)
    bad = x.clone()
    bad[1, 4] = -0.5
    return Example(Branch(), (x,), (bad,))


def _limited() -> Example:
    x = torch.linspace(-2, 2, 41)
    bad = x.clone()
    bad[33] = torch.nan
    return Example(Limited(), (x,), (bad,))


def _ignored() -> Example:
    torch.manual_seed(0)
    logits = torch.randn(4, 7)
    return Example(Ignored(), (logits, torch.tensor([1, 0, -100, 6])), (logits, torch.full((4,), -100)))


def _units() -> Example:
    torch.manual_seed(0)
    x = torch.randn(5, 8)
    bad = x.clone()
    bad[3] = -bad[3].abs()
    return Example(Units(), (x,), (bad,))


REPORTS = (
    Report(0, "a filter of a spectrum", _filtered, "same", CLEAN, part="-filter"),
    Report(
        0,
        "a pass loses a conjugate",
        lambda: _normal(Correlated(), (4, 16), (4, 16)),
        "differs",
        CHANGED,
        (r"aten\.(_?conj|mul)",),
        part="-conjugate",
        plant="a pass loses conjugates",
    ),
    Report(0, "a GRU of two layers", lambda: _normal(Recurrent(), (3, 6, 5)), "same", CLEAN, part="-gru"),
    Report(
        0,
        "a sigmoid by exponentials overflows",
        _gate,
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.(sigmoid|exp|div)",),
        ("x[2, 7]",),
        (r"the program itself makes",),
        part="-sigmoid",
        plant="sigmoid by exponentials",
    ),
    Report(
        0,
        "an optimizer's step forgets its factor",
        lambda: _normal(Momentum(), (6,), (3, 4)),
        "differs",
        CHANGED,
        (r"aten\._?(foreach_)?add",),
        part="-foreach",
        plant="foreach_add forgets its factor",
    ),
    Report(
        0,
        "a wrong function in the body of a loop",
        lambda: Example(Looped(), (torch.tensor(0), torch.linspace(-1e-6, 2e-6, 12))),
        "differs",
        CHANGED,
        (r"aten\.tanh",),
        part="-loop",
        plant="small tanh is 0",
    ),
    Report(
        0,
        "a logarithm of a negative number in a branch",
        _branch,
        "nonfinite",
        ("nonfinite",),
        (r"aten\.log",),
        ("x[1, 4]",),
        part="-branch",
    ),
    Report(0, "a scan", lambda: _normal(Scanned(), (6, 3)), "same", CLEAN, part="-scan"),
    Report(
        0,
        "a wrong function beside a random one",
        lambda: _normal(DroppedAndSquashed(), (6, 20)),
        "differs",
        CHANGED,
        (r"aten\.tanh",),
        part="-beside-random",
        plant="small tanh is 0",
    ),
    Report(
        0,
        "a running sum of a selection begins at 0",
        lambda: _normal(Hits(), (6, 20)),
        "differs",
        CHANGED,
        (r"aten\.cumsum",),
        part="-hits",
        plant="cumsum begins at 0",
    ),
    Report(
        0,
        "clamp loses a NaN",
        _limited,
        "differs",
        CHANGED,
        (r"aten\.clamp",),
        ("x[33]",),
        part="-clamp",
        plant="clamp loses NaN",
    ),
    Report(0, "outputs that share memory", lambda: _normal(Views(), (4, 6)), "same", CLEAN, part="-views"),
    Report(
        0,
        "a loss without a target",
        _ignored,
        "nonfinite",
        ("nonfinite",),
        (r"aten\.(div|nll_loss)",),
        ("targets",),
        part="-no-target",
    ),
    Report(
        0,
        "attention that is not causal any more",
        lambda: _normal(Attention(), (1, 2, 8, 16), (1, 2, 8, 16), (1, 2, 8, 16)),
        "differs",
        CHANGED,
        (r"scaled_dot_product",),
        part="-causal",
        plant="a pass drops is_causal",
    ),
    Report(
        0,
        "an operator divides by the length of a row of zeros",
        _units,
        "nonfinite",
        ("nonfinite",),
        (r"unit_rows",),
        tuple(f"x[3, {column}]" for column in range(8)),
        part="-units",
    ),
)
