"""Programs after the public reports that the tool was first tried with."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from benchmarks.triage.public_reports.operators import advance, bag_sum
from benchmarks.triage.public_reports.report import CHANGED, CLEAN, REFUSED, Example, Report


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.wide, self.narrow = nn.Linear(48, 96), nn.Linear(96, 24)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(nn.functional.gelu(self.wide(x)))  # culprit


def _infinite_input() -> Example:
    torch.manual_seed(0)
    good = torch.randn(12, 48)
    bad = good.clone()
    bad[5, 11] = torch.inf
    return Example(Perceptron(), (good,), (bad,))


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table, self.score = nn.Parameter(torch.randn(40, 6)), nn.Linear(6, 1)

    def forward(self, counts: Tensor, ids: Tensor) -> Tensor:
        pooled = bag_sum(counts, ids, self.table.tanh())  # culprit
        return self.score(pooled).sigmoid()


def _bags() -> Example:
    torch.manual_seed(0)
    ids = torch.randint(0, 10**9, (12,))
    return Example(Recommender(), (torch.tensor([5, 2, 5]), ids), (torch.tensor([5, 4, 5]), ids))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = nn.Linear(24, 48), nn.Linear(48, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


class Causal(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def score(s: Tensor, _batch: Tensor, _head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(j <= i, s, -torch.inf)

        return flex_attention(q, k, v, score_mod=score) * 2  # culprit


class CausalAlone(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def score(s: Tensor, _batch: Tensor, _head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(j <= i, s, -torch.inf)

        return flex_attention(q, k, v, score_mod=score)


class Biased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.register_buffer("bias", torch.randn(48))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, shift: Tensor) -> Tensor:
        def score(s: Tensor, _batch: Tensor, _head: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + self.bias[shift[j] + i]  # culprit

        return flex_attention(q, k, v, score_mod=score)  # culprit


def _qkv() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(1, 2, 32, 16), torch.randn(1, 2, 32, 16), torch.randn(1, 2, 32, 16)


def _shifted() -> Example:
    good = torch.arange(32) % 9
    bad = good.clone()
    bad[17] = 150_000_000_000
    return Example(Biased(), (*_qkv(), good), (*_qkv(), bad))


class Counting(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[int, Tensor, Tensor]:
        def more(i: int, x: Tensor, y: Tensor) -> bool:
            return i < 4

        def step(i: int, x: Tensor, y: Tensor) -> tuple[int, Tensor, Tensor]:
            return i + 1, x - a, y * b

        start = (0, torch.zeros_like(a), torch.ones_like(b))
        found: tuple[int, Tensor, Tensor] = torch._higher_order_ops.while_loop(more, step, start)  # culprit
        return found


class Normalised(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.var(dim=-1, keepdim=True) + 1e-9)  # culprit


class Wrapped(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (a + 5) % (b - 2) * a  # culprit


def _remainder() -> Example:
    a, b = torch.arange(1, 51), torch.arange(1, 51) * 3
    bad = b.clone()
    bad[31] = 2
    return Example(Wrapped(), (a, b), (a, bad))


class Accumulated(nn.Module):
    def forward(self, table: Tensor, rows: Tensor, values: Tensor) -> Tensor:
        return torch.index_add(table, 0, rows, values).clamp(-2.0, 2.0)  # culprit


class Pooled(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.window, self.conv = window, nn.Conv2d(3, 12, 1)

    def forward(self, x: Tensor, samples: Tensor) -> Tensor:
        y = self.conv(x).relu()
        y = nn.functional.fractional_max_pool2d(y, self.window, output_size=(5, 5), _random_samples=samples)  # culprit
        return y + 1


def _pooled(window: int) -> Example:
    torch.manual_seed(0)
    return Example(Pooled(window), (torch.randn(1, 3, 24, 24), torch.rand(1, 12, 2)))


class Advancing(nn.Module):
    def forward(self, start: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        def more(i: Tensor, x: Tensor) -> Tensor:
            return i < 3

        def body(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            advance(x, step)
            return i + 1, x * 1.25

        first = (torch.zeros((), dtype=torch.int64), start.cos())
        found: tuple[Tensor, Tensor] = torch._higher_order_ops.while_loop(more, body, first)  # culprit
        return found


class SmallTanh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * 2e6  # culprit


class SmallErf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(x) * 2e6  # culprit


def _small(module: nn.Module) -> Example:
    torch.manual_seed(0)
    return Example(module, (torch.rand(96) * 4e-8 + 1e-9,))


def _normal() -> Example:
    return Example(Normalised(), (torch.full((4, 6), 2e-10, dtype=torch.float16),))


def _accumulated() -> Example:
    table, values = torch.zeros(7, 3), torch.ones(3, 3)
    good, bad = torch.tensor([0, 2, 6]), torch.tensor([0, -1, 6])
    return Example(Accumulated(), (table, good, values), (table, bad, values))


def _pairs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(8), torch.randn(8)


REPORTS = (
    Report(
        134041,
        "an infinity comes in, and a GELU makes NaN of it",
        _infinite_input,
        "nonfinite",
        ("nonfinite",),
        (r"aten\.(addmm|linear|mul|gelu)",),
        ("x[5, 11]",),
        (r"the program itself makes",),
    ),
    Report(
        135563,
        "a recommender's operator refuses its lengths",
        _bags,
        "both raise",
        ("fault",),
        (r"public_reports(::|\.)bag_sum",),
        (),
        (r"index came from",),
    ),
    Report(
        135563,
        "the same in a compiled package",
        _bags,
        "both raise",
        ("fault",),
        (r"public_reports(::|\.)bag_sum",),
        (),
        (r"index came from",),
        "compiled",
        "-compiled",
    ),
    Report(
        142246,
        "a package without its weights is called before they are loaded",
        lambda: Example(Head(), (torch.ones(4, 24),)),
        "package dies",
        ("error",),
        (r"no weights|without .*weights",),
        command="compiled",
        configs={"aot_inductor.package_constants_in_so": False},
    ),
    Report(
        148752,
        "flex_attention on the CPU",
        lambda: Example(CausalAlone(), _qkv()),
        "same",
        (*CLEAN, "incomplete"),
        command="compiled",
    ),
    Report(
        148752,
        "flex_attention on the CPU with an operation after it",
        lambda: Example(Causal(), _qkv()),
        "no package",
        ("error",),
        (r"flex_attention|aten\.mul",),
        command="api",
        part="-after",
    ),
    Report(
        166525,
        "a loop that carries a plain number, from Python",
        lambda: Example(Counting(), _pairs()),
        "no package",
        ("error",),
        (r"while_loop",),
        command="api",
    ),
    Report(
        169224,
        "a score function reads past its table",
        _shifted,
        "both raise",
        ("fault",),
        (r"flex_attention|aten\.index",),
        ("shift[17]",),
        command="compiled",
    ),
    Report(
        183605,
        "eager's float16 makes NaN, the package does not",
        _normal,
        "differs",
        CHANGED,
        (r"aten\.(var|rsqrt|add)|emulate_precision_casts",),
    ),
    Report(
        183610, "an integer remainder by zero", _remainder, "both raise", ("fault",), (r"aten\.remainder",), ("b[31]",)
    ),
    Report(
        183610,
        "an integer remainder by zero in a compiled package",
        _remainder,
        "both raise",
        ("fault",),
        (r"remainder",),
        ("b[31]",),
        command="compiled",
        part="-compiled",
    ),
    Report(
        185885,
        "an index that eager refuses is taken from the end",
        _accumulated,
        "eager raises",
        REFUSED,
        (r"aten\.index_add",),
        ("rows[1]",),
    ),
    Report(
        185885,
        "an index that eager refuses is taken from the end, by compare",
        _accumulated,
        "eager raises",
        REFUSED,
        (r"aten\.index_add",),
        ("rows[1]",),
        command="compare",
        part="-compare",
    ),
    *(
        Report(
            190272,
            f"a pooling window of {window}",
            lambda window=window: _pooled(window),  # type: ignore[misc]
            "no package",
            ("build_failure",),
            (r"aten\.fractional_max_pool2d",),
            part=str(window) if window else "-0",
        )
        for window in (0, -3, -60)
    ),
    Report(
        195966,
        "the body of a loop overwrites what it carries, through an operator",
        lambda: Example(Advancing(), _pairs()),
        "no package",
        ("build_failure", "error", *CHANGED),
        (r"advance|while_loop",),
    ),
    Report(
        198183,
        "tanh of small numbers is 0",
        lambda: _small(SmallTanh()),
        "differs",
        CHANGED,
        (r"aten\.tanh",),
        plant="small tanh is 0",
    ),
    Report(
        198183,
        "the vectorised erf of small numbers is 0",
        lambda: _small(SmallErf()),
        "differs",
        CHANGED,
        (r"aten\.erf",),
        part="-erf",
    ),
)
