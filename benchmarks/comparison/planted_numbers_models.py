"""The models of planted_numbers.py: in each something is easily made wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Model:
    """A model and its inputs.

    Attributes:
        calls: how often it is called.
        settings: of Inductor.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    calls: int = 1
    dynamic: Any = None
    is_training: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


class Function(nn.Module):
    """A model without weights."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


class State(nn.Module):
    """Buffers that calls overwrite, and what they held before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8, 16))
        self.register_buffer("count", torch.zeros(16, dtype=torch.int64))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        before = self.total.cos()
        self.total.add_(x)
        self.count.add_(1)
        return before, self.total.sin(), torch.where(self.count > 1, x[0].cos(), x[0])


class Cloned(nn.Module):
    """What a buffer held before it was overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8, 16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.total.clone()
        self.total.add_(x)
        return before, self.total.sin()


class Counted(nn.Module):
    """A buffer that only later calls could read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.mean(0), 0.1)
        return x.sin()


class Shared(nn.Module):
    """Two layers of one shape."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32, dtype=dtype)
        self.second = nn.Linear(32, 32, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Scaled(nn.Module):
    """Weights that only generated kernels read."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64, 32) + 1)
        self.shift = nn.Parameter(torch.rand(64, 32))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale).sin() + self.shift


class Branch(nn.Module):
    """A branch."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin() + 1, lambda y: y.cos() * 3, (x,))


class Loop(nn.Module):
    """A loop."""

    def forward(self, x: Tensor) -> Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, y * 1.25 + 0.5

        return while_loop(lambda i, y: i < 7, body, (torch.tensor(0), x))[1]


class Endless(nn.Module):
    """A loop whose end rounding brings about: float64 would take longer than a life."""

    def forward(self, x: Tensor) -> Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        def body(y: Tensor) -> tuple[Tensor]:
            return (y * 2,)

        return while_loop(lambda y: ((y + 1) != y).any(), body, (x.abs() + 1,))[0]


class Table(nn.Module):
    """A table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 64)

    def forward(self, index: Tensor) -> Tensor:
        return self.table(index) * 1.5


class Drop(nn.Module):
    """Dropout between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        hidden = torch.tanh(self.layer(x))
        return (
            functional.dropout(hidden, 0.5, training=True),
            functional.dropout(hidden.exp(), 0.25, training=True),
            x.sigmoid(),
        )


class Recurrent(nn.Module):
    """An LSTM without dropout, in training."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y, (h, c) = self.lstm(x)
        return y.tanh(), h, c


class Overwriting(nn.Module):
    """An input that is overwritten, and a result that was computed from it before."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        old = x + y
        x.mul_(2).add_(y)
        return old.sin(), x.cos()


class HalfSum(nn.Module):
    """Half precision, with sums and indices."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64, dtype=dtype)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.layer(x)
        keys = (torch.arange(64, device=x.device) * 37 + 11) % 101
        return y.sigmoid(), keys * 2 + 1, keys > 50, (keys.float() / 7).sqrt(), keys.argmax()


def _columns(x: Tensor) -> Tensor:
    """Small numbers beside large ones."""
    scales = torch.where(torch.arange(64, device=x.device) < 1, 1e6, 1.0)
    return torch.atan(x) * scales


def _many(x: Tensor) -> Tensor:
    return torch.sin(x) * 3


def _pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.cos()


def _integers(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.div(x, y, rounding_mode="floor"), torch.remainder(x, y), x % y == 0, (x & y).bitwise_not()


def _bytes(x: Tensor) -> Tensor:
    return x * 3 + 200


def _complex(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = torch.complex(x, y)
    return (z * z).conj().resolve_conj(), z.abs(), z.angle()


def _chosen(x: Tensor) -> tuple[Tensor, ...]:
    values, places = x.topk(4, dim=-1)
    return values, places, x.argmax(-1), x.sort(-1).indices, x.min(-1).indices


def _square(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp(), (x * 2).t()


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def _scatter(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(16, x.shape[1], device=x.device).index_add(0, index, x)


def _random(x: Tensor) -> tuple[Tensor, ...]:
    return torch.rand_like(x) + x, torch.randn_like(x) * x, x.tanh()


def _dynamic(x: Tensor) -> tuple[Any, ...]:
    return x.sin() / x.shape[0], x.shape[0] * 2, x.cumsum(0)


def _many_outputs(x: Tensor) -> tuple[Tensor, ...]:
    return (*(x.sin() * n for n in range(1, 6)), x.mean(), (x * 0), x.var(-1))


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    weights = x.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.where(mask.any(-1, keepdim=True), weights, 0.0)


def _masked_nan(x: Tensor, mask: Tensor) -> Tensor:
    return torch.log(torch.where(mask, x.abs() + 1, 0.0)).softmax(-1).nan_to_num(7.0)


def _cancelling(x: Tensor) -> tuple[Tensor, ...]:
    return (x + 1e4) - 1e4 - x, (x - x.mean(-1, keepdim=True)).sum(-1), x.cumsum(-1)[:, -1] - x.sum(-1)


def _large_sums(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(), x.float().sum(-1).to(x.dtype), x.mean(0), x.norm(dim=-1), x.softmax(-1).sum(-1)


def _duplicates(x: Tensor) -> tuple[Tensor, ...]:
    values, places = x.round().sort(-1, descending=True)
    return values, places, x.round().argmax(-1), x.round().unique_consecutive(dim=0).shape[1] + x.round().amax(-1)


def _views(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone()
    y[1:, ::2] += y[:-1, 1::2]
    y.t()[3].mul_(2)
    y.view(-1)[::7] = 0.25
    return y, y[::2].t().contiguous()


def _unused(x: Tensor) -> tuple[Tensor, ...]:
    memory = torch.empty(16, 64, device=x.device)
    memory[:8] = x[:8]
    return memory[:8] * 2, torch.empty_like(x).copy_(x).sin()


def _casts(x: Tensor) -> tuple[Tensor, ...]:
    low = x.to(torch.float8_e4m3fn)
    return low.float() * 2, x.to(torch.float8_e5m2).to(torch.float32), (x * 100).to(torch.int8), x.to(torch.bfloat16)


def _drawn(x: Tensor) -> tuple[Tensor, ...]:
    return torch.multinomial(x.softmax(-1), 3), torch.bernoulli(x.sigmoid()), torch.randint_like(x, 9), 1 + x.erf()


def _rounded(x: Tensor) -> tuple[Tensor, ...]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    codes = (x / scale).round().clamp(-128, 127).to(torch.int8)
    return codes, codes * scale, scale


def _chaotic(x: Tensor) -> Tensor:
    for _ in range(6):
        x = torch.cos(1000 * x)
    return x


def _powers(x: Tensor) -> tuple[Tensor, ...]:
    return x.abs().pow(x), torch.copysign(x, -x), torch.atan2(x.sin(), x), torch.fmod(x, 0.3), x.frac()


def _zeros(x: Tensor) -> Tensor:
    """The sign of a zero decides: it is that of the factor."""
    return torch.atan2(x * 0, x)


def _numbers(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


def _mask() -> tuple[Tensor, Tensor]:
    mask = torch.rand(16, 64) < 0.5
    mask[3] = False
    return torch.randn(16, 64), mask


def _whole() -> tuple[Tensor, Tensor]:
    divisors = torch.randint(1, 9, (64, 32)) * torch.where(torch.rand(64, 32) < 0.5, -1, 1)
    return torch.randint(-100, 100, (64, 32)), divisors


def _rows() -> tuple[Tensor, Tensor]:
    return torch.randn(40, 24), torch.randint(0, 16, (40,))


BATCH = torch.export.Dim("batch", min=2, max=64)
BFLOAT16 = torch.bfloat16
MODELS: dict[str, Model] = {
    "pair": Model(lambda: Function(_pair), _numbers((64, 64))),
    "many": Model(lambda: Function(_many), _numbers((256, 512))),
    "columns": Model(lambda: Function(_columns), _numbers((256, 64))),
    "integers": Model(lambda: Function(_integers), _whole),
    "bytes": Model(lambda: Function(_bytes), lambda: (torch.randint(0, 256, (64, 37), dtype=torch.uint8),)),
    "complex": Model(lambda: Function(_complex), _numbers((16, 24), (16, 24))),
    "chosen": Model(lambda: Function(_chosen), _numbers((24, 40))),
    "square": Model(lambda: Function(_square), _numbers((32, 32))),
    "sum": Model(lambda: Function(_sum), lambda: (torch.rand(64, 4096),)),
    "scatter": Model(lambda: Function(_scatter), _rows),
    "random": Model(lambda: Function(_random), _numbers((32, 48))),
    "dynamic": Model(lambda: Function(_dynamic), _numbers((12, 33)), dynamic=(({0: BATCH},),)),
    "outputs": Model(lambda: Function(_many_outputs), _numbers((16, 32))),
    "state, cloned": Model(Cloned, _numbers((8, 16)), calls=2),
    "counted": Model(Counted, _numbers((8, 16)), calls=2),
    "state": Model(State, _numbers((8, 16)), calls=3),
    "shared": Model(Shared, _numbers((16, 32))),
    "shared, bfloat16": Model(lambda: Shared(BFLOAT16), _numbers((16, 32), dtype=BFLOAT16)),
    "scaled": Model(Scaled, _numbers((64, 32))),
    "branch": Model(Branch, _numbers((16, 32))),
    "loop": Model(Loop, _numbers((16, 32))),
    "endless": Model(Endless, _numbers((4, 8))),
    "table": Model(Table, lambda: (torch.randperm(1000).reshape(8, 125),)),
    "drop": Model(Drop, _numbers((64, 32)), is_training=True),
    "recurrent": Model(Recurrent, _numbers((4, 6, 8)), is_training=True),
    "overwriting": Model(Overwriting, _numbers((16, 32), (16, 32))),
    "half sum": Model(HalfSum, _numbers((128, 64), dtype=BFLOAT16)),
    "masked": Model(lambda: Function(_masked), _mask),
    "masked to NaN": Model(lambda: Function(_masked_nan), _mask),
    "cancelling": Model(lambda: Function(_cancelling), _numbers((32, 200))),
    "large sums, bfloat16": Model(lambda: Function(_large_sums), _numbers((64, 4096), dtype=BFLOAT16)),
    "large sums, float16": Model(lambda: Function(_large_sums), _numbers((64, 4096), dtype=torch.float16)),
    "duplicates": Model(lambda: Function(_duplicates), _numbers((24, 40))),
    "views": Model(lambda: Function(_views), _numbers((12, 16))),
    "unused": Model(lambda: Function(_unused), _numbers((16, 64))),
    "casts": Model(lambda: Function(_casts), lambda: (torch.rand(16, 64) * 2 - 1,)),
    "drawn": Model(lambda: Function(_drawn), _numbers((16, 24))),
    "rounded": Model(lambda: Function(_rounded), _numbers((32, 64))),
    "rounded, bfloat16": Model(lambda: Function(_rounded), _numbers((32, 64), dtype=BFLOAT16)),
    "chaotic": Model(lambda: Function(_chaotic), _numbers((16, 32))),
    "signs of zeros": Model(lambda: Function(_zeros), _numbers((16, 32))),
    "powers": Model(lambda: Function(_powers), _numbers((16, 32))),
}
