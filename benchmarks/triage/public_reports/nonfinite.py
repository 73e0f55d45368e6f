"""Programs after public reports of NaN and infinities."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.operators import half_filled
from benchmarks.triage.public_reports.report import CHANGED, Example, Report


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.sqrt(x)  # culprit
        return nn.functional.gelu(y - 1).tanh()


def _root() -> Example:
    x = torch.arange(1.0, 41.0)
    bad = x.clone()
    bad[23] = -4.0
    return Example(Root(), (x,), (bad,))


class Masked(nn.Module):
    def forward(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        scores = q @ k.t() + mask
        return torch.softmax(scores, -1) @ k  # culprit


def _masked() -> Example:
    torch.manual_seed(0)
    mask = torch.zeros(6, 6)
    bad = mask.clone()
    bad[2] = -torch.inf
    q, k = torch.randn(6, 8), torch.randn(6, 8)
    return Example(Masked(), (q, k, mask), (q, k, bad))


class Means(nn.Module):
    def forward(self, values: Tensor, groups: Tensor) -> Tensor:
        totals = values.new_zeros(5).index_add(0, groups, values)
        counts = values.new_zeros(5).index_add(0, groups, torch.ones_like(values))
        return totals / counts  # culprit


class Partial(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return half_filled(x) + 1  # culprit


class Acosh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.acosh(x) * 2  # culprit


REPORTS = (
    Report(
        189808,
        "a square root of a negative number",
        _root,
        "nonfinite",
        ("nonfinite",),
        (r"aten\.sqrt",),
        ("x[23]",),
    ),
    Report(
        109517,
        "a row of attention that is masked as a whole",
        _masked,
        "nonfinite",
        ("nonfinite",),
        (r"aten\.(_softmax|softmax|sub|amax|exp)",),
        tuple(f"mask[2, {column}]" for column in range(6)),
    ),
    Report(
        114109,
        "the mean of an empty group",
        lambda: Example(Means(), (torch.arange(6.0), torch.tensor([0, 1, 1, 3, 4, 0]))),
        "nonfinite",
        ("nonfinite",),
        (r"aten\.div",),
    ),
    Report(
        145266,
        "a half of a tensor is never written",
        lambda: Example(Partial(), (torch.ones(32, 3),)),
        "",
        ("uninitialised", "incomplete", *CHANGED),
        (r"half_filled",),
        options=("--guards",),
    ),
    Report(
        118267,
        "acosh is -Inf where eager returns NaN",
        lambda: Example(Acosh(), (torch.linspace(-20000.0, 9.0, 33),)),
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.(acosh|log|sqrt|add)",),
        ("x",),
        plant="acosh by its formula",
    ),
)
