"""Programs after public reports in which eager is no proof of the package, or a kernel breaks a rule of integers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CHANGED, CLEAN, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH

OPEN = ("incomplete",)  # the package has what eager has, and eager's is not the exact result, or there is none


class Ids(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).to(torch.int32) + 1  # culprit


class Known(nn.Module):
    def forward(self, ids: Tensor, table: Tensor) -> Tensor:
        return ids == table  # culprit


class Bright(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image + 100  # culprit


class Attend(nn.Module):
    def forward(self, scores: Tensor, hidden: Tensor) -> Tensor:
        return torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)  # culprit


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.round()
        return y.argmax(1), torch.sort(y, dim=1, stable=True).indices


class Nothing(nn.Module):
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return x.sum() * scale + torch.cat((x, x)).sum(0).prod()


class Paged(nn.Module):
    def forward(self, at: Tensor, size: Tensor) -> Tensor:
        return at // size + 1  # culprit


class Steps(nn.Module):
    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        return (x // step).cos()  # culprit


class Larger(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.maximum(x, y).sigmoid()  # culprit


class Rounded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x) * 0.25  # culprit


class Hashed(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return (ids * 2654435761) >> 7  # culprit


class Cached(nn.Module):
    def forward(self, cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(x)  # culprit
        return (cache * x).sum(1)


class Running(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x * 2, 1)  # culprit


class Grey(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return (image.to(torch.int32) * 3 - 40).to(torch.uint8)  # culprit


def _normal(module: nn.Module, *shapes: tuple[int, ...], scale: float = 1.0) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape) * scale for shape in shapes))


def _ids() -> Example:
    x = torch.linspace(-4.0, 900.0, 40)
    x[13] = -7e9
    x[29] = 3e9
    return Example(Ids(), (x,))


def _known() -> Example:
    ids = torch.arange(2**24 - 12, 2**24 + 12)
    return Example(Known(), (ids, ids.float() + torch.tensor([0.0, 1.0]).repeat(12)))


def _bright() -> Example:
    return Example(Bright(), (torch.arange(0, 256, 5, dtype=torch.uint8).reshape(4, 13),))


def _attend() -> Example:
    torch.manual_seed(0)
    hidden = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
    hidden[3] = True
    return Example(Attend(), (torch.randn(2, 6, 6), hidden))


def _paged() -> Example:
    return Example(Paged(), (torch.arange(-40, 41), torch.tensor([7, -3, 16]).repeat(27)))


def _steps() -> Example:
    return Example(
        Steps(), (torch.tensor([1.0, 0.5, 6.0, 7.3, -2.0, 3.1]), torch.tensor([0.1, 0.1, 0.2, 0.4, 0.3, 0.7]))
    )


def _larger() -> Example:
    x, y = torch.linspace(-3, 3, 40), torch.linspace(2, -2, 40)
    x[7] = torch.nan
    return Example(Larger(), (x, y))


def _rounded() -> Example:
    return Example(Rounded(), (torch.arange(-20, 21) * 0.5,))


def _hashed() -> Example:
    return Example(Hashed(), (torch.arange(1, 60) * 37,))


def _grey() -> Example:
    return Example(Grey(), (torch.arange(0, 256, 3, dtype=torch.uint8),))


REPORTS = (
    Report(
        131910,
        "numbers that an integer cannot hold, cast alike in eager",
        _ids,
        "same",
        OPEN,
        (r"aten\.(to\.dtype|_to_copy).* that int32 cannot hold",),
        (),
        BLAMES_TORCH,
        part="-cast-alike",
    ),
    Report(
        95695,
        "integers that are compared as float32, alike in eager",
        _known,
        "same",
        OPEN,
        (r"aten\.eq\.Tensor.* compared as float32",),
        (),
        BLAMES_TORCH,
    ),
    Report(
        109105,
        "bytes that wrap around in eager, too",
        _bright,
        "same",
        CLEAN,
        (r"aten\.add\.Tensor.* wraps around in .* uint8",),
        (),
        BLAMES_TORCH,
        part="-bytes",
    ),
    Report(
        0,
        "a row of attention that is masked as a whole",
        _attend,
        "nonfinite",
        ("nonfinite",),
        (r"aten\._?softmax",),
        ("hidden[3]", "hidden"),
        BLAMES_TORCH,
        part="-masked-row",
    ),
    Report(0, "ties of argmax and of a stable sort", lambda: _normal(Chosen(), (6, 40)), "same", CLEAN, part="-ties"),
    Report(
        0,
        "tensors without elements and without dimensions",
        lambda: Example(Nothing(), (torch.ones(0, 3), torch.tensor(2.5))),
        "same",
        CLEAN,
        part="-no-elements",
    ),
    Report(
        186164,
        "integers are divided as in C++",
        _paged,
        "differs",
        CHANGED,
        (r"aten\.(floor_divide|div)",),
        plant="floor_divide truncates",
    ),
    Report(197895, "1.0 // 0.1 is one too large", _steps, "differs", CHANGED, (r"aten\.(floor_divide|div|floor)",)),
    Report(
        93784,
        "maximum leaves out NaN",
        _larger,
        "differs",
        ("nonfinite", *CHANGED),
        (r"aten\.maximum",),
        (),
        (r"the program itself makes",),
        plant="maximum leaves out NaN",
    ),
    Report(
        0,
        "halves are rounded up",
        _rounded,
        "differs",
        CHANGED,
        (r"aten\.round",),
        plant="halves go up",
        part="-halves",
    ),
    Report(
        0,
        "a product of integers in 32 bits",
        _hashed,
        "differs",
        CHANGED,
        (r"aten\.mul",),
        plant="products of 32 bits",
        part="-32-bits",
    ),
    Report(
        91310,
        "an input is not overwritten",
        lambda: _normal(Cached(), (5, 8), (5, 8)),
        "same",
        CHANGED,
        (r"aten\.(add|copy)_?|input 0|cache",),
        plant="buffers keep what they held",
    ),
    Report(
        0,
        "a running sum begins at 0",
        lambda: _normal(Running(), (5, 31)),
        "differs",
        CHANGED,
        (r"aten\.cumsum",),
        plant="cumsum begins at 0",
        part="-running-sum",
    ),
    Report(
        156788,
        "a cast to bytes saturates",
        _grey,
        "differs",
        CHANGED,
        (r"aten\.(to\.dtype|_to_copy)|convert_element_type",),
        plant="bytes saturate",
    ),
)
