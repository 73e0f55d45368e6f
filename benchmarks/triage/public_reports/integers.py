"""Programs after public reports of narrow integers, indices, quantisation, and numbers of 16 bits."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CHANGED, CLEAN, REFUSED, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH


class Clamped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, -1000, 1000) + 1  # culprit


class AnyOf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.any(1) * 200 + 100  # culprit


class Places(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = nn.functional.adaptive_max_pool2d(  # culprit
            x.transpose(2, 3), (2, 2), return_indices=True
        )
        return values, places


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y.sin_()
        return y.t().argmax()


class Wrapped(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (a + b).to(torch.int64) * 2


class Negated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = -x.abs()  # culprit
        return torch.cat([y, y]).sum()


class FirstOfEqual(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.argmax(torch.round(x), 1)  # culprit


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.linear = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        ops = torch.ops.quantized_decomposed
        bytes_ = ops.quantize_per_tensor.default(x, 0.05, 10, 0, 255, torch.uint8)  # culprit
        return self.linear(ops.dequantize_per_tensor.default(bytes_, 0.05, 10, 0, 255, torch.uint8))


class Stretched(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, scale_factor=(1.3, 1.5), mode="nearest") + 1  # culprit


class Cast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.second(nn.functional.gelu(self.first(x))).float().softmax(1)


class Planes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.conv = nn.Conv2d(4, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).relu().transpose(1, 2) * 2


class Halves(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return (x @ w).cumsum(1), x.sum(0)


class Shorts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.uint16).to(torch.int32) >> 3).to(torch.float32).mean(1)


def _normal(module: nn.Module, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, **more: Any) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape).to(dtype) for shape in shapes), **more)


def _bytes(module: nn.Module) -> Example:
    return Example(module, (torch.tensor([[0, 3], [0, 0], [255, 1]], dtype=torch.uint8),))


def _wrapped() -> Example:
    a = torch.arange(40, dtype=torch.int32)
    a[17] = 2**31 - 3
    return Example(Wrapped(), (a, torch.full((40,), 9, dtype=torch.int32)))


def _ties() -> Example:
    torch.manual_seed(0)
    return Example(FirstOfEqual(), (torch.randn(5, 40),))


def _quantized() -> Example:
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    x[1, 3] = 30.0
    return Example(Quantized(), (x,))


def _planes() -> Example:
    torch.manual_seed(0)
    return Example(Planes(), (torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last),))


REPORTS = (
    Report(
        198071,
        "limits that the dtype does not hold",
        lambda: Example(Clamped(), (torch.tensor([-128, -3, 0, 5, 127], dtype=torch.int8),)),
        "eager raises",
        REFUSED,
        (r"aten\.clamp",),
    ),
    Report(198081, "any of bytes is bool", lambda: _bytes(AnyOf()), "differs", CHANGED, (r"aten\.any",)),
    Report(
        197434,
        "places of maxima in a tensor that is turned",
        lambda: _normal(Places(), (2, 4, 12, 12)),
        "differs",
        CHANGED,
        (r"aten\.(adaptive_)?max_pool2d",),
    ),
    Report(183082, "argmax of a turned tensor", lambda: _normal(Turned(), (5, 7)), "same", CLEAN),
    Report(190764, "a sum of int32 that wraps around", _wrapped, "same", CLEAN),
    Report(
        187018,
        "the negative of a byte's absolute value",
        lambda: Example(Negated(), (torch.tensor([200, 200], dtype=torch.uint8),)),
        "differs",
        CHANGED,
        (r"aten\.(abs|neg|cat)",),
    ),
    Report(
        0,
        "argmax takes the last of equal numbers, which its documentation rules out",
        _ties,
        "differs",
        CHANGED,
        (r"aten\.argmax",),
        (),
        (r"leaves open",),
        part="-last-of-equal",
        plant="argmax takes the last",
    ),
    Report(
        0,
        "bytes of a quantised tensor wrap around",
        _quantized,
        "differs",
        CHANGED,
        (r"quantize_per_tensor|aten\.(clamp|clamp_min|clamp_max|_to_copy)|convert_element_type",),
        part="-quantize",
        plant="quantize does not clamp",
    ),
    Report(
        198201,
        "an interpolation resamples a dimension whose size stays",
        lambda: Example(Stretched(), (torch.arange(12.0).reshape(1, 1, 3, 4),)),
        "differs",
        CHANGED,
        (r"aten\.upsample_nearest2d",),
    ),
    Report(0, "autocast to bfloat16", lambda: _normal(Cast(), (8, 16)), "same", CLEAN, part="-autocast"),
    Report(0, "images whose channels are last", _planes, "same", CLEAN, part="-channels-last"),
    Report(
        0,
        "sums of float16",
        lambda: _normal(Halves(), (12, 40), (40, 24), dtype=torch.float16),
        "same",
        ("clean", "differs"),
        (),
        (),
        BLAMES_TORCH,
        part="-half",
    ),
    Report(
        0,
        "unsigned integers of 16 bits",
        lambda: Example(Shorts(), (torch.arange(0, 60000, 500).reshape(4, 30),)),
        "same",
        CLEAN,
        part="-uint16",
    ),
)
