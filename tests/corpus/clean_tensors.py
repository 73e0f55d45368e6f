"""Clean models of tensor arithmetic: indices, control flow, mutation, infinities that are meant."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.corpus.case import CPU, Case, Example, Make
from tests.corpus.clean_layers import of, seeded


class Ordered(nn.Module):
    def forward(self, x: Tensor) -> Any:
        top, where = torch.topk(x, 3)
        ordered, order = torch.sort(x, dim=1, stable=True)
        return top, where, ordered, order, x.cumsum(1), x.argmax(1)


class Indexed(nn.Module):
    """Valid indices, the last and the negative ones among them."""

    def forward(self, x: Tensor, index: Tensor) -> Any:
        rows = x[index]
        put = torch.index_put(x.sin(), (index,), rows * 2, accumulate=True)
        spread = torch.zeros_like(x).scatter(0, index.unsqueeze(1).expand(-1, 16) % 8, rows)
        return rows, put, spread, x.gather(1, index.unsqueeze(0).expand(8, -1) % 16)


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: (x @ x.t() @ x).cos(), (x,))
        return result * 2


class Loops(nn.Module):
    def forward(self, x: Tensor) -> Any:
        def step(i: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.tanh(a @ a.t() @ a) + i

        return torch.while_loop(lambda i, a: i < 5, step, (torch.zeros((), dtype=torch.int64, device=x.device), x))


class Masked(nn.Module):
    """NaN and infinities that a mask takes away again."""

    def forward(self, x: Tensor) -> Any:
        level = torch.where(x > 0, torch.log(x), 0.0)
        ratio = torch.where(x.abs() > 0.5, 1 / x, 0.0)
        repaired = torch.nan_to_num(torch.sqrt(x), nan=0.0)
        total = torch.logsumexp(x.masked_fill(x < 0, float("-inf")), -1)
        lowest = torch.full_like(x, float("inf")).minimum(x)
        return level, ratio, repaired, total.clamp(min=-10), lowest


class Bounds(nn.Module):
    """Infinity as a value that means something, to the end."""

    def forward(self, x: Tensor) -> Any:
        limit = torch.full((16,), float("inf"), device=x.device)
        return torch.where(x > 0, x, float("-inf")), limit, x.clamp(max=limit).sum()


class Integers(nn.Module):
    """Quantised arithmetic by hand."""

    def forward(self, x: Tensor) -> Any:
        scale = x.abs().amax(1, keepdim=True) / 127
        small = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
        product = small.to(torch.int32) @ small.to(torch.int32).t()
        return product.to(torch.float32) * scale * scale.t(), small >> 1


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Any:
        spectrum = torch.fft.rfft(x)
        return torch.view_as_real(spectrum), torch.fft.irfft(spectrum * 2, n=16)


class Moving(nn.Module):
    """Buffers that change at every call, views and slices that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("cache", torch.zeros(4, 16))

    def forward(self, x: Tensor) -> Any:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.cache[1:3] = x[:2]
        y = x.clone()
        y[:, ::2].mul_(2)
        y.t()[0].zero_()
        return y - self.mean, self.cache, x.view(-1)[5:21], x.unfold(1, 4, 4)


class Honest(nn.Module):
    """Operators in Python and C++ that do what they promise."""

    def forward(self, x: Tensor) -> Any:
        y = torch.ops.corpus.scaled(x, 2.0)
        total = torch.zeros_like(x)
        torch.ops.corpus.add_into(total, y)
        out = torch.empty_like(x)
        torch.ops.corpus_native.fill_all(out, 3.0)
        return total + out, torch.ops.corpus.count(x)


class Float8(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        wide: Tensor = torch.ops.corpus.dequantised(x.clamp(-200, 200).to(torch.float8_e4m3fn))
        return wide * 2


class Large(nn.Module):
    """Large numbers that float32 holds, and a softmax that takes the maximum away first."""

    def forward(self, x: Tensor) -> Any:
        return torch.softmax(x * 1e30, -1), torch.exp(-x.abs() * 1000), (x * 1e18) * 1e18


class Unwritten(nn.Module):
    """A buffer that is filled in two steps, and one that nobody reads."""

    def forward(self, x: Tensor) -> Any:
        out = torch.empty(16, 16, device=x.device)
        out[:8] = x
        out[8:] = x * 2
        return out + 1, torch.empty(4, device=x.device).shape[0]


def integers_and_tensor(device: str) -> Example:
    index = torch.tensor([0, 7, -1, -8, 3], device=device)
    return Example(Indexed(), (*seeded(device, (8, 16)), index))


def calls(case: Make, count: int, name: str) -> Case:
    return Case(name, case, options=("--calls", str(count)))


CASES = (
    Case("ordered", of(Ordered, (8, 16))),
    Case("indexed", integers_and_tensor),
    Case("cond", of(Branches, (8, 8))),
    Case("while_loop", of(Loops, (8, 8))),
    Case("masked", of(Masked, (8, 16))),
    Case("infinite_bounds", of(Bounds, (8, 16))),
    Case("integers", of(Integers, (8, 16)), devices=CPU),
    Case("spectrum", of(Spectrum, (8, 16))),
    calls(of(Moving, (8, 16)), 3, "mutation_and_views"),
    Case("honest_operators", of(Honest, (8, 16)), options=("--guards",), native=True),
    Case("guarded_layers", of(Ordered, (8, 16)), options=("--guards",)),
    Case("filled_in_two_steps", of(Unwritten, (8, 16)), options=("--guards",)),
    Case("float8", of(Float8, (8, 16))),
    Case("large_numbers", of(Large, (8, 16))),
)
