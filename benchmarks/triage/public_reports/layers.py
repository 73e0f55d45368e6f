"""Programs of layers, of states, and of tensors that share memory; some are asked about as compiled packages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.fields import REPORTS as FIELDS
from benchmarks.triage.public_reports.integers import REPORTS as INTEGERS
from benchmarks.triage.public_reports.report import CHANGED, CLEAN, Example, Report

OF_THE_PROGRAM = (r"the program itself (makes|computes)", r"your model computes")


class Shared(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2


class Scores(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(x @ w, -1) * 2  # culprit


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).relu()  # culprit


class Narrowed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.half() * 40).float() - 1  # culprit


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool2d(-x.abs(), 3, 2, 1) + 1  # culprit


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).cos()  # culprit


class MaskedRow(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = (x @ x.t()).masked_fill(mask, torch.finfo(torch.float32).min)
        return scores.softmax(-1) @ x


class HalfLimits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, min=-0.5, max=0.5) * 3


class Loss(nn.Module):
    def forward(self, p: Tensor, t: Tensor, w: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy(p, t, weight=w)  # culprit


class Deviation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp().std(1) + 1  # culprit


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(9, 4)
        with torch.no_grad():
            self.table.weight[7, 2] = torch.nan

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids).sum(1)


class Guarded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.weight = nn.Parameter(torch.randn(6, 5))

    def forward(self, x: Tensor) -> Tensor:
        scores = x.log() @ self.weight
        return torch.where((x > 0).all(1, keepdim=True), scores, torch.zeros(()))


class Inverse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 3).reciprocal() - x


def _normal(module: nn.Module, *shapes: tuple[int, ...], scale: float = 1.0) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape) * scale for shape in shapes))


def _shared() -> Example:
    whole = torch.arange(8.0)
    return Example(Shared(), (torch.arange(8.0), torch.arange(1.0, 8.0)), (whole, whole[1:]))


def _scores() -> Example:
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    bad = x.clone()
    bad[2] *= 80
    return Example(Scores(), (x, torch.randn(6, 9)), (bad, torch.randn(6, 9)))


def _narrowed() -> Example:
    x = torch.linspace(-3, 3, 24).reshape(4, 6)
    bad = x.clone()
    bad[1, 5] = 1800.0
    return Example(Narrowed(), (x,), (bad,))


def _normed() -> Example:
    torch.manual_seed(0)
    x = torch.randn(5, 8)
    x[3] = 0.25
    return Example(Normed(), (x,))


def _masked_row() -> Example:
    torch.manual_seed(0)
    mask = torch.zeros(6, 6, dtype=torch.bool)
    mask[2] = True
    mask[4, 1:] = True
    return Example(MaskedRow(), (torch.randn(6, 8), mask))


def _loss() -> Example:
    torch.manual_seed(0)
    p, t = torch.rand(4, 5).bfloat16(), torch.rand(4, 5).bfloat16()
    return Example(Loss(), (p, t, torch.rand(4, 5)))


def _guarded() -> Example:
    torch.manual_seed(0)
    x = torch.rand(4, 6) + 0.1
    bad = x.clone()
    bad[1, 3] = -2.0
    return Example(Guarded(), (x,), (bad,))


def _again(name: str, command: str, part: str) -> Report:
    """A program of these fields, with another command."""
    from dataclasses import replace

    found = next(report for report in (*FIELDS, *INTEGERS) if report.name == name)
    return replace(found, command=command, part=part)


REPORTS = (
    Report(
        0,
        "two inputs share memory, and one is overwritten",
        _shared,
        "differs",
        ("contract",),
        part="-shared-inputs",
    ),
    Report(
        0,
        "a softmax by exponentials overflows",
        _scores,
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.(_softmax|softmax|exp|div)",),
        (),
        OF_THE_PROGRAM,
        part="-softmax",
        plant="softmax by exponentials",
    ),
    Report(
        0,
        "a softmax by exponentials overflows in a compiled package",
        _scores,
        "differs",
        ("nonfinite",),
        (r"aten\.(_softmax|softmax|exp|div)",),
        (),
        OF_THE_PROGRAM,
        command="compiled",
        part="-softmax-compiled",
        plant="softmax by exponentials",
    ),
    Report(
        0,
        "a running variance without its correction",
        lambda: _normal(Statistics(), (2, 3, 4, 4)),
        "same",
        CHANGED,
        (r"batch_norm|running_var",),
        part="-running-variance",
        plant="running variance is biased",
    ),
    Report(
        0,
        "a product that float16 does not hold",
        _narrowed,
        "differs",
        CHANGED,
        (r"aten\.(mul|_to_copy)|convert_element_type",),
        part="-half-overflow",
    ),
    Report(
        0,
        "windows are padded with zeros",
        lambda: _normal(Pooled(), (1, 2, 7, 7)),
        "differs",
        CHANGED,
        (r"aten\.max_pool2d",),
        part="-pool",
        plant="pools are padded with 0",
    ),
    Report(
        0,
        "a layer norm of equal numbers without eps",
        _normed,
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.(native_layer_norm|layer_norm|rsqrt|mul)",),
        (),
        OF_THE_PROGRAM,
        part="-layer-norm",
        plant="layer norm without eps",
    ),
    Report(0, "rows that are masked with the least number", _masked_row, "same", CLEAN, part="-masked-rows"),
    Report(
        151744,
        "limits that are no integers",
        lambda: Example(HalfLimits(), (torch.arange(-4, 5),)),
        "same",
        CLEAN,
    ),
    Report(197098, "a loss of bfloat16 is float32", _loss, "differs", CHANGED, (r"aten\.(binary_cross_entropy|mean)",)),
    Report(
        0,
        "the deviation of one number",
        lambda: _normal(Deviation(), (4, 1)),
        "nonfinite",
        ("nonfinite",),
        (r"aten\.(var|std)",),
        part="-deviation",
    ),
    Report(
        0,
        "a NaN in a row of a table that nothing reads",
        lambda: Example(Table(), (torch.tensor([[0, 1, 8], [3, 3, 2]]),)),
        "same",
        CLEAN,
        part="-unread-nan",
    ),
    Report(0, "a NaN that a choice leaves out", _guarded, "same", CLEAN, part="-guarded-nan"),
    Report(
        0,
        "a wrong number in a compiled package, which says nothing of its program",
        lambda: _normal(Inverse(), (50,)),
        "differs",
        ("clean", "incomplete"),
        command="compiled",
        part="-compiled",
        plant="reciprocal of the square",
    ),
    _again("conjugate", "bisect", "-conjugate-bisect"),
    _again("half", "bisect", "-half-bisect"),
    _again("last-of-equal", "compare", "-last-of-equal-compare"),
)
