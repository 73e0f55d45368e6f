"""NaN and accidental infinities."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.corpus.case import GENERATED, Case, Example, Expected, Make


class Dense(nn.Module):
    """A linear layer whose weights are the same every time."""

    def __init__(self, width: int = 16, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        with torch.no_grad():
            self.linear.weight.copy_(torch.linspace(-0.5, 0.5, width * width).view(width, width))
            self.linear.bias.fill_(0.1)
        self.to(dtype)


class Share(Dense):
    """0/0 where a row is all zeros."""

    def forward(self, x: Tensor) -> Tensor:
        share = x / x.sum(-1, keepdim=True)  # origin
        return self.linear(share).relu()


class Square(Dense):
    """float16 holds numbers up to 65504."""

    def forward(self, x: Tensor) -> Tensor:
        energy = x * x  # origin
        return self.linear(energy).relu()


class Log(Dense):
    def forward(self, x: Tensor) -> Tensor:
        level = torch.log(x - 1)  # origin
        return self.linear(level).relu()


class Attention(nn.Module):
    """A row whose mask leaves nothing."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).masked_fill(~mask, -math.inf)
        weights = torch.softmax(scores, dim=-1)  # origin
        return weights @ v


class Mlp(Dense):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.tanh(self.linear(x))).sigmoid()


class Inverse(Dense):
    """1/0 is Inf here; Inf - Inf, two launches on, is NaN."""

    def forward(self, x: Tensor) -> Tensor:
        inverse = 1 / x  # origin
        h = self.linear(inverse)
        return h - h.mean(-1, keepdim=True)


class Centred(Dense):
    """Inf that comes in is -Inf, Inf and then NaN two launches on."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x.view(16, -1).t())
        return self.linear(h - h.mean(-1, keepdim=True))


class Exponential(Dense):
    def forward(self, x: Tensor) -> Tensor:
        grown = torch.exp(x)  # origin
        return self.linear(grown).relu()


class Float8(nn.Module):
    """NaN in float8, which has one even where it has no infinity."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        small = torch.log(x - 1).to(self.dtype)  # origin
        wide: Tensor = torch.ops.corpus.dequantised(small)
        return wide + 1


class Gap(Dense):
    def forward(self, x: Tensor) -> Tensor:
        gap = torch.ops.corpus.log_gap(x * 2)  # origin
        return self.linear(gap).relu()


class Whitened(Dense):
    """The deviation of a batch of one."""

    def forward(self, x: Tensor) -> Tensor:
        spread = x.std(0)  # origin
        return self.linear(x / spread)


class Product(nn.Module):
    """A product that float16 cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.full((64, 64), 50.0, dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight  # origin
        return y.relu()


class Angle(Dense):
    """A cosine that is rounded past 1."""

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.acos(x * 1.0001)  # origin
        return self.linear(angle)


class Growing(Dense):
    """A gain that grows at every call, beyond what float32 holds at the second."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gain", torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).tanh() + 2
        self.gain.mul_(1e20)  # origin
        return self.linear(y * self.gain)  # origin


def rows(device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """(4, 16), from 2 to 3: no zero, none below 1."""
    return torch.linspace(2, 3, 64).view(4, 16).to(device, dtype)


def with_one(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    x.view(-1)[37] = value
    return x


def fed(
    module: Callable[[], nn.Module], change: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float32
) -> Make:
    """The model, exported with ordinary numbers and fed with changed ones."""

    def make(device: str) -> Example:
        x = rows(device, dtype)
        return Example(module().to(device), (x,), inputs=(change(x),))

    return make


def dead_row(device: str) -> Example:
    q, k, v = (torch.linspace(-1, 1, 2 * 8 * 16, device=device).view(2, 8, 16) * s for s in (1, 2, 3))
    mask = torch.ones(8, 8, dtype=torch.bool, device=device).tril()
    dead = mask.clone()
    dead[3] = False
    return Example(Attention(), (q, k, v, mask), inputs=(q, k, v, dead))


def nan_weight(device: str) -> Example:
    module = Mlp()
    with torch.no_grad():
        module.linear.weight[3, 4] = math.nan
    return Example(module.to(device), (rows(device),))


def infinite_weight(device: str) -> Example:
    module = Dense().linear
    with torch.no_grad():
        module.bias[3] = -math.inf
    return Example(module.to(device), (rows(device),))


def batch_of_one(device: str) -> Example:
    dynamic = ({0: Dim("batch", min=1, max=64)},)
    return Example(Whitened().to(device), (rows(device).sin(),), dynamic=dynamic, inputs=(rows(device)[:1].clone(),))


def zero_row(x: Tensor) -> Tensor:
    x = x.clone()
    x[2] = 0
    return x


HALF, BFLOAT = torch.float16, torch.bfloat16
MADE = Expected("nonfinite", GENERATED)

CASES = (
    Case("zero_by_zero", fed(Share, zero_row), MADE),
    Case("half_overflow", fed(lambda: Square(dtype=HALF), lambda x: with_one(x, 300), HALF), MADE),
    Case("half_product_overflow",
         lambda d: Example(Product().to(d), (torch.full((4, 64), 1.0, dtype=HALF, device=d),),
                           inputs=(torch.full((4, 64), 50.0, dtype=HALF, device=d),)), Expected("nonfinite")),
    Case("log_of_negative", fed(Log, lambda x: with_one(x, 0.5)), MADE),
    Case("softmax_of_dead_row", dead_row, MADE),
    Case("nan_in_input", fed(Mlp, lambda x: with_one(x, math.nan)), Expected("nonfinite", inputs=("x",))),
    Case("nan_in_weight", nan_weight, Expected("nonfinite", inputs=("linear.weight",))),
    Case("inf_in_input",
         lambda d: Example(Centred().to(d), (torch.linspace(2, 3, 256, device=d).view(16, 16),),
                           inputs=(with_one(torch.linspace(2, 3, 256, device=d).view(16, 16), -math.inf),)),
         Expected("nonfinite", inputs=("x",))),
    Case("inf_in_weight", infinite_weight, Expected("nonfinite", inputs=("bias",))),
    Case("inf_minus_inf", fed(Inverse, lambda x: with_one(x, 0.0)), Expected("nonfinite")),
    Case("bfloat16_exp", fed(lambda: Exponential(dtype=BFLOAT), lambda x: with_one(x, 100), BFLOAT), MADE),
    Case("float8_e4m3_nan", fed(lambda: Float8(torch.float8_e4m3fn), lambda x: with_one(x, 0.5)), MADE),
    Case("float8_e5m2_nan", fed(lambda: Float8(torch.float8_e5m2), lambda x: with_one(x, 0.5)), MADE),
    Case("operator_makes_nan", fed(Gap, lambda x: x), Expected("nonfinite", ("corpus::log_gap*",))),
    Case("deviation_of_one", batch_of_one, Expected("nonfinite")),
    Case("acos_past_one", fed(Angle, lambda x: with_one(x / 4, 1.0)), MADE),
    Case("gain_on_second_call", lambda d: Example(Growing().to(d), (rows(d),)), Expected("nonfinite", call=1),
         options=("--calls", "2")),
)  # fmt: skip
