"""Programs after public reports of custom operators, assertions, and memory that grows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.operators import pairs, remembering, route, spilled, turned
from benchmarks.triage.public_reports.report import CHANGED, Example, Report


class Routed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = route(x * 2)  # culprit
        return y.sum(1) + 1


class Paired(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = pairs(x.sin())  # culprit
        return y * 3


class Turned(nn.Module):
    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        def one(t: Tensor) -> Tensor:
            return turned(t) * 2

        def other(t: Tensor) -> Tensor:
            return t - 1

        return torch.cond(flag.sum() > 0, one, other, (x,))  # culprit


class Positive(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch.ops.aten._assert_async.msg((x > 0).all(), "all are positive")  # culprit
        return x.log()


class Shorter(nn.Module):
    def forward(self, count: Tensor, y: Tensor) -> Tensor:
        n = count.item()  # culprit
        torch._check(n >= 0)
        torch._check(n < y.shape[0])
        return y[:n] * 2


class Hits(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        hits = x.nonzero().squeeze(1)  # culprit
        torch._check(hits.shape[0] == w.shape[0])
        return x[hits] * w


class Spilled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h = spilled(x.relu())  # culprit
        return h.sin().softmax(-1)


class Counter(nn.Module):
    counter: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counter", torch.ones(1))

    def forward(self) -> Tensor:
        self.counter = self.counter + 1.0  # culprit
        return self.counter


class Channels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = nn.Parameter(torch.rand(36, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale).relu().mean((2, 3))


class Solved(nn.Module):
    def forward(self, factors: Tensor, pivots: Tensor, b: Tensor) -> Tensor:
        return torch.linalg.ldl_solve(factors, pivots, b).sin()  # culprit


def _channels() -> Example:
    torch.manual_seed(0)
    x = torch.randn(2, 36, 16, 16)
    return Example(Channels(), (x,), (x[:, :9],))


def _solved() -> Example:
    torch.manual_seed(0)
    a = torch.randn(10, 10)
    good = torch.linalg.ldl_factor(a + a.T)
    bad = torch.tensor([4, 100_000, 3, 9, -70_000, 6, 9, 5, 9, 8], dtype=torch.int32)
    b = torch.randn(10, 10)
    return Example(Solved(), (good.LD, good.pivots, b), (good.LD, bad, b))


class PastEnd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        v = torch.as_strided(x + 1, [8, 8, 3], [1, 64, 192])  # culprit
        return torch.cumsum(v, 1)


class Remembering(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return remembering(x.sin()).sum()  # culprit


def _normal(module: nn.Module, *shape: int) -> Example:
    torch.manual_seed(0)
    return Example(module, (torch.randn(*shape),))


_ANY = torch.export.Dim.DYNAMIC

REPORTS = (
    Report(
        182328,
        "an operator's result has other strides than its fake kernel says",
        lambda: _normal(Routed(), 6, 24),
        "differs",
        ("contract",),
        (r"public_reports(::|\.)route",),
    ),
    Report(
        149732,
        "an operator's result is larger than its fake kernel says",
        lambda: _normal(Paired(), 5, 7),
        "differs",
        ("contract",),
        (r"public_reports(::|\.)pairs",),
    ),
    Report(
        169778,
        "an operator in a branch has other strides than its fake kernel says",
        lambda: Example(Turned(), (torch.arange(30.0).reshape(5, 6), torch.ones(2))),
        "same",
        ("contract",),
        (r"public_reports(::|\.)turned",),
    ),
    Report(
        147282,
        "an assertion about an input",
        lambda: Example(Positive(), (torch.ones(9),), (torch.tensor([3.0, 1, 2, -2, 5, 6, 7, 8, 9]),)),
        "both raise",
        ("fault", *CHANGED),
        (r"aten\._assert_async",),
        ("x[3]",),
        (r"index came from",),
    ),
    Report(
        150539,
        "a number in a tensor, checked against a size",
        lambda: Example(
            Shorter(),
            (torch.tensor(4), torch.ones(10)),
            (torch.tensor(4), torch.ones(3)),
            (None, {0: _ANY}),
            strict=True,
        ),
        "both raise",
        ("fault",),
        (r"aten\._assert_scalar",),
        false=(r"out of bounds",),
    ),
    Report(
        146462,
        "export takes a number of hits for 2 or more",
        lambda: Example(
            Hits(),
            (torch.arange(4.0), torch.ones(3)),
            (torch.tensor([0.0, 0, 2, 0]), torch.ones(1)),
            ({0: _ANY}, {0: _ANY}),
        ),
        "both raise",
        ("contract", "fault"),
        (r"aten\._assert_scalar", r"input 1 \(w\)"),
        false=(r"out of bounds",),
    ),
    Report(
        159154,
        "heap corruption: an operator writes past the end of its result",
        lambda: _normal(Spilled(), 4, 24),
        "package dies",
        ("fault", "overrun"),
        (r"public_reports(::|\.)spilled",),
        false=(r"softmax",),
    ),
    Report(
        165444,
        "a buffer that the model overwrites is always what it was",
        lambda: Example(Counter(), ()),
        "same",
        ("wrong_value",),
        (r"aten\.add",),
        part="-calls",
        options=("--calls", "3"),
    ),
    Report(
        153992,
        "a package that was compiled for 36 channels is called with 9 of them",
        _channels,
        "eager raises",
        ("contract",),
        (r"input 0 ",),
        command="compiled",
    ),
    Report(
        148866,
        "pivots that LAPACK does not take",
        _solved,
        "both raise",
        ("fault",),
        (r"linalg_ldl_solve",),
    ),
    Report(
        96937,
        "an operator keeps all that it returned",
        lambda: _normal(Remembering(), 20_000),
        "same",
        ("growth",),
        (r"public_reports(::|\.)remembering",),
        command="memory",
    ),
    Report(
        195665,
        "as_strided reaches past the end of its storage",
        lambda: _normal(PastEnd(), 64, 1),
        "eager raises",
        ("contract", "refused_by_eager"),
        (r"aten\.(as_strided|cumsum)",),
    ),
)
