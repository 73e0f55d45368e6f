"""Programs after public reports of amplified rounding, of numbers near the limits of a dtype, and of settings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CHANGED, CLEAN, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH


class Inverted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.reciprocal(nn.functional.layer_norm(x, (128,)).abs() + 1e-6)


class Angle(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.tanhshrink(x)
        return torch.atan2(y, y)


class Instances(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Normed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (96,))  # culprit


class Tangent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x) * 2


class Scaled(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y.to(torch.float16)).float() * 3  # culprit


class SineOfAngle(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(torch.atan(x))  # culprit


class Compensated(nn.Module):
    def forward(self, x: Tensor, big: Tensor) -> Tensor:
        total = big + x  # culprit
        return x - (total - big)


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(48, 24)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return torch.clamp(torch.round(y / 0.0173) + 3, -128, 127).to(torch.int8)


class Weights8(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.register_buffer("weight", torch.randint(-128, 128, (32, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(32).to(torch.bfloat16) * 0.01)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scales).relu()


class Weights4(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        whole = torch.randint(0, 16, (32, 64), dtype=torch.int32)
        self.register_buffer("weight", torch.ops.aten._convert_weight_to_int4pack_for_cpu(whole, 1))
        self.register_buffer("scales", torch.rand(2, 32, 2).to(torch.bfloat16) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.weight, 32, self.scales) + 1


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.norm.running_var.uniform_(1e-3, 2.0)
        self.norm.running_mean.normal_()
        self.to(torch.bfloat16).eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv, self.one, self.two = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.BatchNorm2d(6)
        for norm in (self.one, self.two):
            norm.running_var.uniform_(0.5, 2.0)
            norm.running_mean.normal_()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.one(y) + self.two(y * 2)


class Rectified(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rrelu(x, training=True) + 1


class Padded(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = nn.functional.pad(x.abs(), (0, 24, 34, 0), "replicate")
        return y, y + y


def _normal(
    module: nn.Module, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0, seed: int = 0
) -> Example:
    torch.manual_seed(seed)
    return Example(module, ((torch.randn(*shape) * scale).to(dtype),))


def _large() -> Example:
    torch.manual_seed(0)
    return Example(Normed(), (8.5e37 * (1 + 1e-3 * torch.rand(4, 96)),))


def _infinite() -> Example:
    torch.manual_seed(0)
    x = torch.randn(4, 96).half()
    bad = x.clone()
    bad[2, 17] = torch.inf
    return Example(Normed(), (x,), (bad,))


def _halves() -> Example:
    return Example(Halves(), (torch.arange(-8.5, 9.0, 0.5, dtype=torch.float64),))


def _scaled() -> Example:
    torch.manual_seed(0)
    return Example(Scaled(), (torch.rand(200).half() + 9, torch.rand(200) + 1))


def _undefined_angle() -> Example:
    x = torch.linspace(-3, 3, 21)
    bad = x.clone()
    bad[20] = torch.nan
    return Example(SineOfAngle(), (x,), (bad,))


def _compensated() -> Example:
    torch.manual_seed(0)
    return Example(Compensated(), (torch.rand(128), torch.full((128,), 1e7)))


REPORTS = (
    Report(
        186577,
        "the reciprocal of a layer norm near 0",
        lambda: _normal(Inverted(), 64, 128),
        "",
        ("clean", "differs"),
        false=BLAMES_TORCH,
    ),
    Report(
        148241,
        "an angle of numbers that rounding decides",
        lambda: _normal(Angle(), 1, 3, 64, 64),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        142839,
        "an instance norm of large images",
        lambda: _normal(Instances(), 1, 3, 256, 256),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        173793,
        "a layer norm of numbers whose squares are too large",
        _large,
        "nonfinite",
        ("nonfinite",),
        (r"aten\.(native_)?layer_norm|aten\.(var_mean|rsqrt|pow|mul)",),
    ),
    Report(
        173885,
        "a layer norm of a row with an infinity",
        _infinite,
        "nonfinite",
        ("nonfinite",),
        (r"aten\.(native_)?layer_norm|aten\.(var_mean|sub|rsqrt|mul)",),
        ("x[2, 17]",),
    ),
    Report(
        142223,
        "a tangent that another library computes",
        lambda: _normal(Tangent(), 64, 64),
        "same",
        CLEAN,
        command="compare",
        false=BLAMES_TORCH,
    ),
    Report(
        141561,
        "a convolution by another library",
        lambda: _normal(Convolved(), 1, 4, 64, 64),
        "same",
        CLEAN,
        command="compare",
        false=BLAMES_TORCH,
    ),
    Report(117346, "halves go to the even number", _halves, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        136896,
        "a cast to float16 before a product is left out",
        _scaled,
        "same",
        ("clean", *CHANGED),
        (r"aten\.(_to_copy|mul)|convert_element_type|emulate_precision_casts",),
    ),
    Report(
        186018,
        "the sine of an angle loses a NaN",
        _undefined_angle,
        "nonfinite",
        ("nonfinite", *CHANGED),
        (r"aten\.(sin|atan)",),
        ("x[20]",),
    ),
    Report(
        0,
        "a setting lets the compiler take a compensation for 0",
        _compensated,
        "differs",
        CHANGED,
        (r"enable_unsafe_math_opt_flag",),
        part="-unsafe-math",
        configs={"cpp.enable_unsafe_math_opt_flag": True},
    ),
    Report(
        0,
        "bytes that rounding decides behind a linear layer",
        lambda: _normal(Steps(), 40, 48),
        "",
        ("clean", "differs"),
        part="-steps",
        false=BLAMES_TORCH,
    ),
    Report(
        148494,
        "weights of 8 bits",
        lambda: _normal(Weights8(), 5, 64, dtype=torch.bfloat16),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        124034,
        "weights of 4 bits",
        lambda: _normal(Weights4(), 5, 64, dtype=torch.bfloat16),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        120545,
        "a batch norm of bfloat16 is folded into a convolution",
        lambda: _normal(Folded(), 2, 3, 12, 12, dtype=torch.bfloat16),
        "same",
        ("clean", "differs"),
        configs={"freezing": True},
        false=BLAMES_TORCH,
    ),
    Report(
        124286,
        "a convolution that two batch norms read, frozen",
        lambda: _normal(Shared(), 2, 3, 12, 12),
        "same",
        CLEAN,
        configs={"freezing": True},
        false=BLAMES_TORCH,
    ),
    Report(
        147255,
        "slopes that are drawn",
        lambda: _normal(Rectified(), 6, 20),
        "differs",
        ("clean", "incomplete"),
        false=BLAMES_TORCH,
    ),
    Report(
        115157,
        "a padded tensor is returned beside twice of it",
        lambda: _normal(Padded(), 1, 5, 41, 39),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
)
