"""Public reports that a compiled model is not eager's, each as a small program of its own, with the answer expected.

The number is that of the issue in pytorch/pytorch. The expected kind is what the discussion of the report comes to:
a bug, a switch (a setting makes it equal), or rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

Call = Callable[..., Any]


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, call: Call, **parts: nn.Module) -> None:
        super().__init__()
        self.call = call
        self.parts = nn.ModuleDict(parts)

    def forward(self, *inputs: Tensor) -> Any:
        return self.call(*self.parts.values(), *inputs)


@dataclass(frozen=True)
class Report:
    """A report.

    Attributes:
        issue: its number.
        kind: the expected answer; "" where nothing differs.
        call: the program, called with its modules and its inputs.
        inputs: makes the inputs.
        parts: makes its modules.
        on_cuda: the expected answer on a GPU, where it is another: functions of the CPU that are off, and divisions and
            small numbers that Triton rounds otherwise by default.
    """

    issue: int
    kind: str
    call: Call
    inputs: Callable[[], tuple[Tensor, ...]]
    parts: Callable[[], dict[str, nn.Module]] = dict
    on_cuda: str | None = None

    def kind_on(self, device: str) -> str:
        """The expected answer on "cpu" or "cuda"."""
        return self.kind if device == "cpu" or self.on_cuda is None else self.on_cuda


def _rotated(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _bfloat16(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape).bfloat16() for shape in shapes)


def _float16(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape).half() for shape in shapes)


def _float32(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def _scale(x: Tensor) -> Tensor:
    return (448.0 / x.abs().max().clamp(min=1e-12)).float()


def _small(least: float) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.linspace(-1, 1, 64) * least,)


def _masked(x: Tensor, y: Tensor) -> Tensor:
    filled = torch.full_like(x, 0.3)
    return torch.where(x > 0, x * 1.7, filled) + y * 0.9


def _gated(x: Tensor, gate: Tensor) -> Tensor:
    return x * gate * 0.7 + gate


REPORTS = {
    "rotary embedding in bfloat16": Report(
        182225, "switch", lambda q, c, s: q * c + _rotated(q) * s, _bfloat16((2, 7, 16), (7, 16), (7, 16))
    ),
    "masked sum in float16": Report(183761, "switch", _masked, _float16((16, 32), (16, 32))),
    "product with a cast scalar": Report(
        136896,
        "switch",
        lambda x, y: x * y.half() + x * 0.3,
        lambda: (torch.randn(64).half(), torch.tensor(1.00048828125)),
    ),
    "scale for float8 in bfloat16": Report(136181, "switch", _scale, _bfloat16((16, 96))),
    "chain of products in bfloat16": Report(159239, "switch", _gated, _bfloat16((32, 64), (32, 64))),
    "cosine similarity in bfloat16": Report(
        170684, "switch", lambda x, y: F.cosine_similarity(x, y, dim=1), _bfloat16((5, 60, 7), (5, 60, 7))
    ),
    "layer norm of two dimensions": Report(
        143182, "rounding", lambda norm, x: norm(x), _float32((1, 3, 60, 50)), lambda: {"norm": nn.LayerNorm([60, 50])}
    ),
    "reciprocal of a layer norm": Report(
        186577, "rounding", lambda x: torch.reciprocal(F.layer_norm(x, [128]).abs() + 1e-6), _float32((64, 128))
    ),
    "root mean square norm": Report(
        141727,
        "rounding",
        lambda x, s: F.rms_norm(x.float(), (4096,), s, 1e-5).bfloat16(),
        _bfloat16((157, 4096), (4096,)),
    ),
    "sum of a softmax": Report(
        189787, "rounding", lambda x: torch.floor(torch.softmax(x, 1).sum(1)), _float32((43, 59))
    ),
    "sign of a GELU": Report(189804, "rounding", lambda x: F.gelu(x).sign() + F.gelu(x), _float32((32, 64))),
    "error function next to zero": Report(198183, "bug", torch.erf, _small(1e-7), on_cuda=""),
    "inverse hyperbolic tangent next to zero": Report(198183, "bug", torch.atanh, _small(1e-9), on_cuda=""),
    "expm1 in a denominator": Report(189803, "bug", lambda x: torch.expm1(x), _small(1e-9), on_cuda=""),
    "instance norm, pooled and normalised": Report(
        183601,
        "rounding",
        lambda x: F.normalize(F.adaptive_avg_pool2d(F.instance_norm(x), 1), dim=0) * x,
        _float32((4, 3, 10, 12)),
    ),
    "interpolation and an inverse": Report(
        150165,
        "rounding",
        lambda x: torch.inverse(F.interpolate(x, size=(16, 16), mode="bilinear", align_corners=True)),
        _float32((1, 3, 8, 8)),
    ),
    "convolution with batch norm": Report(
        178096,
        "rounding",
        lambda conv, norm, x: norm(conv(x)).relu(),
        _float32((2, 3, 16, 16)),
        lambda: {"conv": nn.Conv2d(3, 8, 3), "norm": nn.BatchNorm2d(8)},
    ),
    "layer norm before a leaky ReLU": Report(
        181692,
        "rounding",
        lambda norm, x: F.rrelu(norm(x), training=False),
        _float32((8, 96)),
        lambda: {"norm": nn.LayerNorm(96)},
    ),
    "projections by einsum": Report(
        179575,
        "rounding",
        lambda x, w: torch.softmax(torch.einsum("bsd,dh->bsh", x, w), -1),
        _float32((2, 9, 32), (32, 24)),
        on_cuda="switch",
    ),
    "logarithm of a sum of exponentials": Report(
        110611, "rounding", lambda x: torch.log(torch.exp(x).sum(1)), _float32((16, 100)), on_cuda="switch"
    ),
}
