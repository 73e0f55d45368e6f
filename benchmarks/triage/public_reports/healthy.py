"""Healthy programs that look like public reports: what they report is rounding, or is not so any more."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CLEAN, Example, Report


class Inverted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.interpolate(x, size=(12, 12), mode="bilinear", align_corners=True)
        return torch.inverse(y + 4 * torch.eye(12))


class Rotary(nn.Module):
    def forward(self, q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = q.shape[-1] // 2
        turned = torch.cat((-q[..., half:], q[..., :half]), -1)
        return q * cos + turned * sin


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.linear = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.conv = nn.Conv2d(3, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).relu()


class Offset(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x + 500, (32,))


class NegativeZero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.elu((x * 0.0) + -0.0) - x.abs()


class Found(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.table((x[x >= 1] - 1).long()).sum(0)


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.sin() @ x.cos().t()).softmax(-1)


class Chosen(nn.Module):
    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        def one(t: Tensor) -> Tensor:
            return nn.functional.gelu(t)

        def other(t: Tensor) -> Tensor:
            return t * 2

        return torch.cond(flag.sum() > 0, one, other, (x,))


class Copied(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        part = a[:, 1]
        higher = torch.maximum(part, b)
        part.copy_(higher + torch.log1p(torch.exp(torch.minimum(part, b) - higher)))
        return a.sum()


class Divided(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(0).transpose(0, 1).contiguous().div_(3)


class Wide(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + x).to(torch.int64)


class Bytes(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y + x).to(torch.int32)


class Signs(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sign(nn.functional.gelu(x))


def _normal(module: nn.Module, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape).to(dtype) for shape in shapes))


def _bytes() -> Example:
    x = torch.arange(-60, 68, dtype=torch.int8)
    return Example(Bytes(), (x, x.flip(0)))


def _healthy(number: int, title: str, make: object, command: str = "triage") -> Report:
    return Report(number, title, make, "same", CLEAN, command=command)  # type: ignore[arg-type]


REPORTS = (
    _healthy(150165, "the inverse of an interpolated matrix", lambda: _normal(Inverted(), (1, 2, 7, 7))),
    _healthy(
        159239,
        "rotary embeddings in bfloat16",
        lambda: _normal(Rotary(), (2, 4, 8, 16), (8, 16), (8, 16), dtype=torch.bfloat16),
    ),
    _healthy(118087, "a linear layer of many dimensions", lambda: _normal(Deep(), (2, 3, 2, 1, 2, 1, 3, 2))),
    _healthy(113018, "a convolution", lambda: _normal(Convolved(), (2, 3, 9, 9))),
    _healthy(143182, "a layer norm far from 0", lambda: _normal(Offset(), (5, 32))),
    _healthy(189799, "negative zeros", lambda: _normal(NegativeZero(), (40,))),
    _healthy(192143, "an embedding of what a mask leaves", lambda: Example(Found(), (torch.tensor([0, 2, 6, 0, 1]),))),
    _healthy(158614, "memory that does not grow", lambda: _normal(Plain(), (30, 20)), "memory"),
    _healthy(120160, "a branch with a decomposed operator", lambda: _normal(Chosen(), (6, 7), (3,))),
    _healthy(125999, "a part of an input is overwritten", lambda: _normal(Copied(), (5, 3, 7), (5, 7))),
    _healthy(93371, "softmax, transposed and divided in place", lambda: _normal(Divided(), (6, 5))),
    _healthy(108520, "int32 wraps around", lambda: Example(Wide(), (torch.full((20,), 2**31 - 5, dtype=torch.int32),))),
    _healthy(109105, "int8 wraps around", _bytes),
    _healthy(189804, "the sign of a GELU", lambda: Example(Signs(), (torch.linspace(-12.0, 5.0, 64),)), "compare"),
)
