"""Programs after public reports of what an operator means: dtypes, empty tensors, shared memory, refusals."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CHANGED, CLEAN, REFUSED, Example, Report

BLAMES_THE_MODEL = (r"(your model|the program itself) (computes|makes)",)


class Bytes(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(a, b)  # culprit


class Positions(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.ones((2, 4, 4), dtype=torch.bool).cumsum(1, dtype=torch.bfloat16)  # culprit
        return positions, (x / positions).sum(1)


class NoRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        _, mean = torch.var_mean(x[x > 100])  # culprit
        return mean + 1


class ThroughIntegers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.view(torch.int32) * 2
        y.sub_(-4)
        x[:, 2:5] = 2
        return y.view(torch.int64)


class Count(nn.Module):
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1.0  # culprit
        return x * self.count


class Permuted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, v = (layer(x).view(4, 4, 4, 4).transpose(1, 2) for layer in (self.q, self.v))
        k = self.k(x).view(4, 4, 4, 4).permute(0, 2, 3, 1)  # culprit
        weights = (torch.matmul(q, k) * 0.5).softmax(-1)  # culprit
        return torch.matmul(weights, v)  # culprit


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.ones(2, 1, dtype=torch.complex64)  # culprit


class Windows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(x.relu(), 3, 2, ceil_mode=True)  # culprit


class Coins(nn.Module):
    def forward(self, p: Tensor) -> Tensor:
        return torch.bernoulli(p)  # culprit


class Copied(nn.Module):
    def forward(self, x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
        return torch.index_copy(x, 0, rows, values) + 1  # culprit


class Buckets(nn.Module):
    def forward(self, offsets: Tensor, values: Tensor) -> Tensor:
        return torch.searchsorted(offsets[1:], values, right=True)  # culprit


class Weighted(nn.Module):
    def forward(self, rows: Tensor, source: Tensor) -> Tensor:
        return torch.zeros(4, dtype=torch.float64).index_add(0, rows, source, alpha=2.0) / 2  # culprit


class Angle(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(torch.atan(torch.angle(torch.rsqrt(x))))  # culprit


class Negative(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.copysign(x.exp(), -0.0) * 2  # culprit


class Running(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 0)  # culprit


class Quotient(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu(x)  # culprit
        return 64 * x / y


class Window(nn.Module):
    def forward(self, x: Tensor, part: Tensor) -> Tensor:
        y = torch.slice_scatter(x.cos(), part, 1, 4, 6)  # culprit
        return y.sum(0)


class Total(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor(5.0).cumsum(0) + x  # culprit


def _normal(module: nn.Module, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape).to(dtype) for shape in shapes))


def _coins() -> Example:
    good = torch.full((3, 4), 0.5)
    bad = good.clone()
    bad[1, 2] = 1.75
    return Example(Coins(), (good,), (bad,))


def _copied() -> Example:
    x, good, values = torch.zeros(4, 3), torch.tensor([0, 2]), torch.ones(2, 3)
    return Example(Copied(), (x, good, values), (x, torch.tensor([0, -1]), values))


def _buckets() -> Example:
    return Example(Buckets(), (torch.tensor([0, 3, 7, 12]), torch.arange(12)))


def _weighted() -> Example:
    torch.manual_seed(0)
    return Example(Weighted(), (torch.tensor([0, 2, 2]), torch.rand(3, dtype=torch.float64)))


REPORTS = (
    Report(
        191308,
        "a product of int8 matrices is int64",
        lambda: Example(Bytes(), (torch.ones(1, 1, 2, dtype=torch.int8), torch.ones(1, 2, 2, dtype=torch.int8))),
        "differs",
        ("contract", *CHANGED),
        (r"aten\.(matmul|bmm)",),
    ),
    Report(
        189518,
        "a pass drops the dtype of a cumulative sum",
        lambda: _normal(Positions(), (2, 4, 4), dtype=torch.bfloat16),
        "differs",
        ("contract", *CHANGED),
        (r"aten\.cumsum",),
        (),
        (r"lowering or fusion is (likely )?wrong",),
    ),
    Report(
        197108,
        "the mean of no rows is 0",
        lambda: _normal(NoRows(), (5, 6)),
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.var_mean",),
        (),
        BLAMES_THE_MODEL,
    ),
    Report(
        198101,
        "a view of another dtype is read after its memory was overwritten: not on a CPU",
        lambda: Example(ThroughIntegers(), (torch.arange(-12, 12).reshape(4, 6),)),
        "same",
        CLEAN,
    ),
    Report(
        165444,
        "a buffer of one element counts no further",
        lambda: Example(Count(), (torch.arange(4.0),)),
        "same",
        CHANGED,
        (r"aten\.add|count",),
        options=("--calls", "3"),
    ),
    Report(
        195320,
        "attention with keys that are permuted in another way",
        lambda: _normal(Permuted(), (4, 4, 16)),
        "differs",
        CHANGED,
        (r"aten\.(matmul|bmm|permute|_softmax|softmax|clone)|scaled_dot_product|sfdp|fuse_attention|pattern_matcher",),
    ),
    Report(
        174891,
        "a column of complex numbers is added",
        lambda: Example(Spectrum(), (torch.full((2, 2), 1.0, dtype=torch.complex64),)),
        "no package",
        ("build_failure",),
        (r"aten\.full",),
    ),
    Report(
        100987,
        "the mean of a window that reaches over the end",
        lambda: _normal(Windows(), (1, 2, 6, 6)),
        "differs",
        CHANGED,
        (r"aten\.avg_pool2d",),
        plant="windows are always whole",
    ),
    Report(
        185246,
        "a probability above 1",
        _coins,
        "eager raises",
        REFUSED,
        (r"aten\.bernoulli",),
        ("p[1, 2]",),
    ),
    Report(197554, "index_copy to row -1", _copied, "eager raises", REFUSED, (r"aten\.index_copy",), ("rows[1]",)),
    Report(
        182343,
        "buckets whose limits begin inside of a tensor",
        _buckets,
        "differs",
        CHANGED,
        (r"aten\.searchsorted",),
        plant="searchsorted is one too far",
    ),
    Report(
        108963,
        "index_add forgets its factor",
        _weighted,
        "differs",
        CHANGED,
        (r"aten\.index_add",),
        plant="index_add forgets its factor",
    ),
    Report(
        143978,
        "the angle of NaN is a number",
        lambda: _normal(Angle(), (40,)),
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.angle",),
        (),
        (r"rsqrt.* may be what is wrong",),
        plant="the angle of NaN is 0",
    ),
    Report(
        174172,
        "the sign of a negative zero is not copied",
        lambda: _normal(Negative(), (30,)),
        "differs",
        CHANGED,
        (r"aten\.copysign",),
        plant="copysign compares",
    ),
    Report(
        132107,
        "running sums of infinities are NaN",
        lambda: Example(Running(), (torch.full((20,), torch.inf),)),
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.cumsum",),
        (),
        BLAMES_THE_MODEL,
        plant="cumsum begins at 0",
    ),
    Report(
        101009,
        "a quotient by a zero has another sign",
        lambda: _normal(Quotient(), (30,)),
        "nonfinite",
        ("nonfinite", *CHANGED),
        (r"aten\.relu",),
        (),
        BLAMES_THE_MODEL,
        plant="relu multiplies",
    ),
    Report(
        122291,
        "columns are written one too far",
        lambda: _normal(Window(), (16, 16), (16, 2)),
        "differs",
        CHANGED,
        (r"aten\.slice_scatter",),
        plant="slice_scatter is one too far",
    ),
    Report(
        193265,
        "a running sum of a constant without dimensions",
        lambda: Example(Total(), (torch.ones(()),)),
        "no package",
        ("build_failure",),
        (r"aten\.cumsum|pointless_cumsum|pass_pattern_1\b",),
    ),
)
