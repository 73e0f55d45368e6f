"""Programs after public reports of packages that return other numbers than eager does."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CHANGED, Example, Report


class FirstFalse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x > 0).to(torch.int32).argmin(1)  # culprit


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.argmax(x * 2, 1)  # culprit


def _largest() -> Example:
    x = torch.arange(24.0).reshape(3, 8)
    x[1, 3] = torch.nan
    return Example(Largest(), (x,))


class Doubled(nn.Module):
    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        y = x.cos()
        y[rows] = y[rows] + 1  # culprit
        return y


class Totals(nn.Module):
    def forward(self, x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
        return torch.index_add(x, 0, rows, values)  # culprit


class Spread(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.var(x.exp(), dim=1, correction=2) + 1  # culprit


class ThroughHalf(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x / 3).to(torch.float16).to(torch.float32)  # culprit
        return y, y.sum(1)


class HalfChain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.where(x > 0, x, torch.full_like(x, 0.1)).to(torch.float16)
        return (y + 2048.0).to(torch.float32) - 2048.0  # culprit


class Ties(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 1.7 + 0.3) == (x * 1.7078125 + 0.3)  # culprit


class Asinh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.asinh(x) + 1  # culprit


class Sinh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sinh(x) * 0.5  # culprit


class Remainder(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.remainder(a, b) * 2  # culprit


class Shifted(nn.Module):
    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        return torch.bitwise_left_shift(x, by)  # culprit


class Ones(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.floor(torch.softmax(x, 1).sum(1) * 5)  # culprit


class Phase(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x % 1.7  # culprit


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.sum(0))  # culprit
        return x + self.seen


class Inverse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 3).reciprocal() - x  # culprit


class LostCast(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        y = (x @ w).to(torch.bfloat16).float()  # culprit
        return (y * 300).sin()


class Least(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.amin(1) + 1  # culprit


def _bytes() -> Example:
    row = torch.tensor([9, 4, 90, 6, 3, 8, 7, 21, 100, 110, 120, 5, 33, 40, 50, 60, 70, 80, 95, 99], dtype=torch.uint8)
    return Example(Least(), (torch.stack((row, row.flip(0))),))


class Relaid(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        whole = x.repeat((3, 2))
        return torch.as_strided(whole[:, ::2], (3, 2), whole.stride()) * 3  # culprit


class Waves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (torch.sin(x) * 2 + x.cos()).tanh()  # culprit


def _normal(module: nn.Module, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Example:
    torch.manual_seed(0)
    return Example(module, ((torch.randn(*shape) * scale).to(dtype),))


def _rows(module: nn.Module) -> Example:
    torch.manual_seed(0)
    return Example(module, (torch.randn(6, 5), torch.tensor([4, 1, 3])))


def _totals() -> Example:
    torch.manual_seed(0)
    return Example(Totals(), (torch.randn(6, 5), torch.tensor([4, 1, 4, 1]), torch.randn(4, 5)))


def _infinite_divisors() -> Example:
    a, b = torch.arange(1.0, 33.0), torch.arange(2.0, 34.0)
    b[9] = torch.inf
    return Example(Remainder(), (a, b))


REPORTS = (
    Report(
        184893,
        "argmin of comparisons",
        lambda: _normal(FirstFalse(), 5, 33),
        "differs",
        CHANGED,
        (r"aten\.argmin",),
        plant="argmin is one too far",
    ),
    Report(
        118266,
        "argmax does not see a NaN",
        _largest,
        "differs",
        CHANGED,
        (r"aten\.argmax",),
        plant="argmax leaves out NaN",
    ),
    Report(
        138908,
        "rows are added to, where they should be set",
        lambda: _rows(Doubled()),
        "differs",
        CHANGED,
        (r"aten\.index_put",),
        plant="index_put accumulates",
    ),
    Report(
        138908,
        "rows are added to, where they should be set: which part of Inductor",
        lambda: _rows(Doubled()),
        "differs",
        CHANGED,
        (r"aten\.index_put",),
        command="bisect",
        part="-bisect",
        plant="index_put accumulates",
    ),
    Report(
        94778,
        "index_add keeps the last of equal rows",
        _totals,
        "differs",
        CHANGED,
        (r"aten\.index_add",),
        plant="index_add keeps the last",
    ),
    Report(
        113167,
        "a variance without its correction",
        lambda: _normal(Spread(), 6, 12),
        "differs",
        CHANGED,
        (r"aten\.var",),
        plant="var without correction",
    ),
    Report(
        113167,
        "a variance without its correction, by compare",
        lambda: _normal(Spread(), 6, 12),
        "differs",
        CHANGED,
        (r"aten\.var",),
        command="compare",
        part="-compare",
        plant="var without correction",
    ),
    Report(
        185337,
        "a cast to float16 and back is left out",
        lambda: _normal(ThroughHalf(), 4, 20, scale=900.0),
        "same",
        CHANGED,
        (r"aten\._to_copy|convert_element_type|emulate_precision_casts",),
    ),
    Report(
        183761,
        "float16 is kept in float32 between two operations",
        lambda: _normal(HalfChain(), 40),
        "differs",
        CHANGED,
        (r"aten\.(_to_copy|add)|convert_element_type|emulate_precision_casts",),
    ),
    Report(
        195214,
        "bfloat16 is not rounded before a comparison",
        lambda: _normal(Ties(), 200, dtype=torch.bfloat16),
        "differs",
        CHANGED,
        (r"aten\.(eq|mul|add)|emulate_precision_casts",),
    ),
    Report(
        142345,
        "asinh of a large negative number is infinite",
        lambda: Example(Asinh(), (torch.linspace(-30000.0, 5.0, 40),)),
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.(asinh|log)",),
        (),
        (r"the program itself makes",),
        plant="asinh by its formula",
    ),
    Report(
        183763,
        "sinh overflows too early",
        lambda: Example(Sinh(), (torch.tensor([1.0, 89.1, -88.9, 20.0]),)),
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.(sinh|exp)",),
        (),
        (r"the program itself makes",),
        plant="sinh by exponentials",
    ),
    Report(
        198057,
        "the remainder by an infinity is NaN",
        _infinite_divisors,
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.remainder",),
        ("b[9]",),
        (r"the program itself makes",),
    ),
    Report(
        189787,
        "the sum of a softmax is taken for 1",
        lambda: _normal(Ones(), 64, 9),
        "differs",
        CHANGED,
        (r"aten\.(sum|_softmax|softmax|floor)",),
    ),
    Report(
        186875,
        "the remainder of a bfloat16 by a number",
        lambda: _normal(Phase(), 300, dtype=torch.bfloat16, scale=20.0),
        "differs",
        CHANGED,
        (r"aten\.remainder",),
    ),
    Report(
        120424,
        "a buffer is not updated",
        lambda: Example(Counter(), (torch.ones(3, 4),)),
        "same",
        CHANGED,
        (r"aten\.(add|copy_)|seen",),
        plant="buffers keep what they held",
    ),
    Report(
        93824,
        "reciprocal of something else",
        lambda: _normal(Inverse(), 50),
        "differs",
        CHANGED,
        (r"aten\.reciprocal",),
        plant="reciprocal of the square",
    ),
    Report(
        93824,
        "reciprocal of something else, in the smallest program",
        lambda: _normal(Inverse(), 50),
        "differs",
        CHANGED,
        (r"aten\.reciprocal",),
        command="minify",
        part="-minify",
        plant="reciprocal of the square",
    ),
    Report(
        179561,
        "a cast to bfloat16 and back after a product is left out",
        lambda: Example(LostCast(), (torch.linspace(0, 3, 64).reshape(8, 8), torch.linspace(1, 2, 64).reshape(8, 8))),
        "differs",
        CHANGED,
        (r"aten\._to_copy|convert_element_type|emulate_precision_casts",),
    ),
    Report(
        191499,
        "the least of 16 bytes or more is 0",
        _bytes,
        "differs",
        CHANGED,
        (r"aten\.amin",),
        (),
        (r"aten\.add\S* \(add\).* explains it",),
    ),
    Report(
        197431,
        "as_strided of a view reads past a buffer",
        lambda: Example(Relaid(), (torch.tensor([[1.5, 2.5]]),)),
        "differs",
        CHANGED,
        (r"aten\.as_strided",),
    ),
    Report(
        150364,
        "a pass takes a sine for a cosine",
        lambda: _normal(Waves(), 9, 33),
        "differs",
        CHANGED,
        (r"aten\.sin",),
        plant="a pass takes sin for cos",
    ),
)
