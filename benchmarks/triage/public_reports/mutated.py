"""Programs after public reports of writes: through views that overlap or leave gaps, and into shared memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CHANGED, CLEAN, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH


class Gaps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        windows = x.unfold(1, 1, 5)
        windows.add_(windows)  # culprit
        return x * 1


class Expanded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.expand(2, *x.shape)
        y[0, 0] = 5
        return y + 0


class Filled(nn.Module):
    def forward(self, base: Tensor) -> Tensor:
        view = base.expand(3, -1)
        view.fill_(2.0)  # culprit
        return base + 1


class LastOfOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x[1].expand(4)
        y[-1] = 3
        return y * 2


class Overlap(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sin()
        y.as_strided((3, 4), (2, 1)).mul_(2)  # culprit
        return y + 1


class Folded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.add(x, x)
        windows = y.unfold(1, 4, 2)
        return windows.abs_()  # culprit


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x[[0, 0]] += x[[0, 0]]
        return x * 1


class Updated(nn.Module):
    def forward(self, x: Tensor, part: Tensor) -> Tensor:
        updated = torch.slice_scatter(x, part, 0, 0, 2)
        x.copy_(updated)
        return updated


class Flag(nn.Module):
    flag: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("flag", torch.zeros(1, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(self.flag.any(), lambda t: t + 10, lambda t: t * 2, (x,))
        self.flag.logical_or_(torch.ones(1, dtype=torch.bool))
        return y


class OneBin(nn.Module):
    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        bins = torch.zeros(1, x.shape[1])
        bins.scatter_add_(0, rows.unsqueeze(-1).expand(-1, x.shape[1]), x)
        return torch.index_select(bins, 0, rows)


class TwoColumns(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, 0] += x[:, 2].abs()
        y[:, 0] += x[:, 2].abs()
        return y


class Stacked(nn.Module):
    def forward(self, x: Tensor, by: Tensor) -> tuple[Tensor, Tensor]:
        part = x[(slice(-1850, -1849, 1),)]
        every = x[(slice(-1850, None, 43),)]
        return torch.max(part, -every), every.sum(0) * by


class Cache(nn.Module):
    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 4))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        self.keys.index_copy_(0, at, x)
        return self.keys.cumsum(0) + x.sum()


class Step(nn.Module):
    def forward(self, weight: Tensor, grad: Tensor) -> Tensor:
        flat = weight.view(-1)
        flat[::2].sub_(grad[: flat[::2].shape[0]] * 0.1)
        return weight.t().contiguous() @ weight


def _normal(module: nn.Module, *shapes: tuple[int, ...]) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape) for shape in shapes))


def _bins() -> Example:
    torch.manual_seed(0)
    return Example(OneBin(), (torch.randn(8, 4), torch.zeros(8, dtype=torch.long)))


def _cache() -> Example:
    torch.manual_seed(0)
    return Example(Cache(), (torch.randn(2, 4), torch.tensor([3, 5])))


REPORTS = (
    Report(
        198102,
        "what lies between windows that are added to becomes 0",
        lambda: Example(Gaps(), (torch.arange(1, 25).reshape(4, 6),)),
        "differs",
        CHANGED,
        (r"aten\.(unfold|add_)",),
    ),
    Report(
        114302,
        "an expanded tensor is written to",
        lambda: Example(Expanded(), (torch.arange(6),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        197448,
        "an expanded tensor is filled",
        lambda: Example(Filled(), (torch.tensor([-1.0, -0.5, 0.0, 0.5]),)),
        "differs",
        CHANGED,
        (r"aten\.(expand|fill_)",),
    ),
    Report(
        152425,
        "the last of one element",
        lambda: Example(LastOfOne(), (torch.arange(2),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        174371,
        "a product in place through a view that overlaps",
        lambda: _normal(Overlap(), (1, 8)),
        "same",
        ("clean", "incomplete"),
        (r"aten\.(as_strided|mul_)",),
        false=BLAMES_TORCH,
    ),
    Report(
        183888,
        "absolute values in place through windows that overlap",
        lambda: Example(Folded(), (torch.linspace(-3, 3, 7).reshape(1, 7),)),
        "no package",
        ("build_failure",),
        (r"aten\.(unfold|abs_)",),
    ),
    Report(
        174074,
        "one row twice is added to itself",
        lambda: Example(Twice(), (torch.tensor([[-0.8716, 0.1114]], dtype=torch.float64),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        195451,
        "what is returned has the memory of the input that is overwritten",
        lambda: _normal(Updated(), (4, 3), (2, 3)),
        "same",
        ("contract", *CLEAN),
        (r"output 0 has memory of input 0 \(x\)|share memory",),
    ),
    Report(
        169118,
        "a flag that a branch reads is set afterwards",
        lambda: _normal(Flag(), (3, 4)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
        options=("--calls", "2"),
    ),
    Report(191571, "rows are added into one, which is read back", _bins, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        136662, "a column is added to twice", lambda: _normal(TwoColumns(), (2, 3)), "same", CLEAN, false=BLAMES_TORCH
    ),
    Report(
        113015,
        "a sum and a maximum of other slices",
        lambda: _normal(Stacked(), (1850, 3), (3,)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(114967, "a cache of keys", _cache, "same", CLEAN, false=BLAMES_TORCH, options=("--calls", "3")),
    Report(
        0,
        "a step in place through a view, and a product",
        lambda: _normal(Step(), (6, 4), (12,)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
        part="-step",
    ),
)
