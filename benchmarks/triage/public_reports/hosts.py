"""Programs after public reports of gradients, sizes, scans, operators of one's own, weights and scripts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch.export import Dim

from benchmarks.triage.public_reports.operators import added_into, strided
from benchmarks.triage.public_reports.report import CHANGED, CLEAN, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH


class SliceGradient(nn.Module):
    def forward(self, grad: Tensor) -> Tensor:
        whole = grad.expand(4, 13)
        return torch.slice_scatter(whole, torch.zeros(4, 6), 1, 0, 6)


class DiagonalGradient(nn.Module):
    def forward(self, grad: Tensor) -> Tensor:
        return torch.diagonal_scatter(grad.expand(8, 8), torch.zeros(8), 0)


class Reverse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return associative_scan(lambda a, b: a + b, x, dim=1, reverse=True, combine_mode="generic")


class Scanned(nn.Module):
    def forward(self, start: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        def body(carry: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
            after = carry * 0.5 + step
            return after, after.relu()

        last, every = scan(body, start, steps)
        return last, every


class Repeated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.repeat([2]) * 3


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[0] // 2
        return x[:half] * 2 - x[half:]


class Conjugates(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.conj(x)


class Upsampled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x).relu() + 1


class Unpooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pooled, at = nn.functional.max_pool2d(x, 3, padding=1, return_indices=True)
        return nn.functional.max_unpool2d(pooled, at, 3, 3, 1, output_size=x.shape)


class Strided(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return strided(x).unsqueeze(1).repeat_interleave(2, 1) + x.unsqueeze(1)


class AddedInto(nn.Module):
    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        y = x.t().sin()
        added_into(y, by)
        return y * 2


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bags = nn.EmbeddingBag(10, 4, mode="max", padding_idx=3)

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        return self.bags(ids, offsets) * 2


class Total(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.expand(1 << 27).sum() - (1 << 27)


class Quotient(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a / b


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.gain = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        weight = (self.first.weight.t() * self.gain).tanh()
        return self.second((x @ weight).relu()) + self.gain


class Sides(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        return x[:n].sum(0) / n  # culprit


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.linear = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.linear(self.norm(x)) + x


def _normal(
    module: nn.Module, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, dynamic: Any = None
) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape).to(dtype) for shape in shapes), dynamic=dynamic)


def _repeated() -> Example:
    torch.manual_seed(0)
    return Example(Repeated(), (torch.randn(20),), (torch.randn(40),), ({0: Dim("n")},))


def _halves() -> Example:
    torch.manual_seed(0)
    return Example(Halves(), (torch.randn(8, 3),), (torch.randn(14, 3),), ({0: 2 * Dim("half")},))


def _unpooled() -> Example:
    torch.manual_seed(0)
    return Example(Unpooled(), (torch.randn(1, 2, 3, 6).to(memory_format=torch.channels_last),))


def _bags() -> Example:
    return Example(Bags(), (torch.tensor([1, 3, 3, 5, 7, 3, 9]), torch.tensor([0, 2, 2, 5])))


def _huge() -> Example:
    huge = torch.finfo(torch.float64).min / 2
    both = torch.tensor([complex(huge, huge), 1 + 2j], dtype=torch.complex128)
    return Example(Quotient(), (both, both.clone()))


def _sides() -> Example:
    torch.manual_seed(0)
    return Example(Sides(), (torch.randn(9, 4), 5), (torch.randn(9, 4), 7), (None, Dim.DYNAMIC))


def _swapped(package: str, example: Example) -> Any:
    """Updates all weights of a package that folds constants when it is loaded, and calls it before and afterwards."""
    model = torch._inductor.aoti_load_package(package)
    weights = {n: w.detach() * 2 for n, w in example.module.named_parameters() if n != "first.bias"}  # it is unread
    results = [model(*example.args)]
    model.load_constants(weights, check_full_update=True)
    return [*results, model(*example.args)]


REPORTS = (
    Report(
        180771,
        "the gradient of a sum over a slice that is overwritten",
        lambda: Example(SliceGradient(), (torch.tensor(1.5),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        182012,
        "the gradient of a sum over a diagonal that is overwritten",
        lambda: Example(DiagonalGradient(), (torch.tensor(1.5),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        137943,
        "running sums from the end",
        lambda: Example(Reverse(), (torch.arange(18.0).reshape(2, 9),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        158566, "a scan with two results", lambda: _normal(Scanned(), (4,), (6, 4)), "same", CLEAN, false=BLAMES_TORCH
    ),
    Report(
        135796, "a repetition of another size than that of the export", _repeated, "same", CLEAN, false=BLAMES_TORCH
    ),
    Report(145500, "halves of an even size", _halves, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        148950,
        "a number and its conjugate",
        lambda: _normal(Conjugates(), (5, 5), dtype=torch.complex64),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        184026,
        "a transposed convolution with more rows",
        lambda: _normal(Upsampled(), (2, 8, 4, 4)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        187173,
        "maxima are put back into images whose channels are last",
        _unpooled,
        "same",
        ("clean", "contract"),
        false=BLAMES_TORCH,
    ),
    Report(
        186850,
        "an operator returns a tensor in an order of its own",
        lambda: _normal(Strided(), (2, 3, 4, 5)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        128084,
        "an operator writes into a tensor that is turned",
        lambda: _normal(AddedInto(), (4, 6), (6, 4)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(49237, "the largest of bags, some without ids", _bags, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        154703,
        "a sum of many ones",
        lambda: Example(Total(), (torch.ones(1),)),
        "same",
        ("clean", "incomplete", *CHANGED),
    ),
    Report(136273, "a quotient of large complex numbers", _huge, "same", CLEAN, false=BLAMES_TORCH),
    Report(168126, "a norm under autocast", lambda: _normal(Normed(), (16, 64)), "same", CLEAN, false=BLAMES_TORCH),
    Report(118304, "a number for a size is divided by", _sides, "no package", ("build_failure",), (r"aten\.div",)),
    Report(
        179225,
        "weights are updated of which some are folded",
        lambda: _normal(Folded(), (3, 6)),
        "same",
        CLEAN,
        command="script",
        drive=_swapped,
        configs={"aot_inductor.use_runtime_constant_folding": True},
    ),
)
