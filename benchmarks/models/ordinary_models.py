"""Ordinary models for benchmarks/comparison/compare.py: none of their kernels may be called wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.models.planted_models import Example

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Convolutions(nn.Module):
    """A residual block with batch normalisation in training mode, pooling, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.norm.num_batches_tracked = None  # a counter that Inductor takes for constant: a true difference

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.first(x))
        self.norm.train()
        hidden = hidden + self.norm(self.second(hidden))
        return F.adaptive_avg_pool2d(F.max_pool2d(hidden, 2), 1).flatten(1)


class Recurrent(nn.Module):
    """A gated recurrent cell, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(24, 32)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], 32, dtype=x.dtype, device=x.device)
        states = []
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            states.append(state)
        return torch.stack(states, 1)


class Statistics(nn.Module):
    """Norms, variances, quantiles of sorts, logsumexp, cosine similarity, cumulative sums and products."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        centred = (x - x.mean(0)) / (x.std(0) + 1e-3)
        return (
            torch.linalg.vector_norm(x, dim=1),
            torch.logsumexp(x * 30, dim=1),
            F.cosine_similarity(x, y, dim=1),
            torch.cumsum(centred, 1),
            torch.cumprod(1 + y * 0.01, 1),
            F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="none"),
            F.smooth_l1_loss(x, y),
            x.abs().amax(1) - y.amin(0).sum(),
        )


class Indexing(nn.Module):
    """Gathers, scatters, masks, rolls, one-hot encoding, triangles, padding."""

    def forward(self, x: Tensor, index: Tensor) -> Any:
        gathered = torch.gather(x, 1, index % x.shape[1])
        scattered = torch.zeros_like(x).scatter_add(1, index % x.shape[1], x[:, : index.shape[1]])
        lower = torch.tril(x @ x.t())
        shifted = torch.roll(x, 3, 1) * F.pad(x[:, 1:], (0, 1))
        hot = F.one_hot(index % 5, 5).sum(1)
        kept = torch.where(x > 0, x, x * 0.1).index_select(0, index[0] % x.shape[0])
        return gathered, scattered, lower, shifted, hot, kept, x.flip(0).diagonal()


class Integers(nn.Module):
    """Integer arithmetic: overflow that wraps, shifts, division by rounding, remainders, bits, comparisons."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        wide = x.long() * 1_000_003 + y.long()
        small = (x.to(torch.int8) * 7) ^ y.to(torch.int8)
        return (
            wide % 1009,
            x // (y.abs() + 1),
            torch.bitwise_and(x, y) | (x >> 2),
            small,
            (x > y) & ~(x == 3),
            torch.div(x, y.abs() + 1, rounding_mode="trunc"),
            x.sum(1),
            (x * 2_000_003) + y,
        )


class Functions(nn.Module):
    """Elementary and special functions."""

    def forward(self, x: Tensor) -> Any:
        positive = x.abs() + 0.1
        trigonometric = torch.atan2(x.sin(), x.cos()) + x.tanh() * torch.asin(x.clamp(-0.99, 0.99))
        powers = positive.pow(1.7) + positive.rsqrt() - positive.log1p() + torch.expm1(x)
        return (
            trigonometric,
            powers,
            1 + torch.erf(x),
            torch.lgamma(positive),
            F.mish(x),
            F.softplus(x),
            x.sigmoid().logit(),
        )


class Image(nn.Module):
    """Interpolation, group normalisation, transposed convolution, pixel shuffle, grid sampling."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: Tensor) -> Any:
        hidden = self.norm(x)
        larger = F.interpolate(hidden, scale_factor=2.0, mode="bilinear", align_corners=False)
        nearest = F.interpolate(hidden, scale_factor=1.5, mode="nearest")
        return self.up(F.silu(hidden)), larger, nearest, F.pixel_shuffle(x, 2), F.avg_pool2d(x, 3, 2, 1)


class Encoder(nn.Module):
    """An encoder layer of a transformer with dropout in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        self.layer.train()
        hidden: Tensor = self.layer(x)
        return hidden


class Experts(nn.Module):
    """Top-k routing over experts, with a softmax over the chosen ones."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.Parameter(torch.randn(4, 32, 32) / 6)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(self.router(x), 2, dim=-1)
        outputs = torch.einsum("bi,eij->bej", x, self.experts)
        picked = outputs.gather(1, chosen.unsqueeze(-1).expand(-1, -1, 32))
        return (picked * weights.softmax(-1).unsqueeze(-1)).sum(1)


class Rotary(nn.Module):
    """Rotary positions, RMS normalisation, a causal mask, grouped queries, a key cache."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))
        self.register_buffer("cache", torch.zeros(2, 2, 8, 16))

    def forward(self, q: Tensor, k: Tensor) -> Any:
        def turned(x: Tensor) -> Tensor:
            angle = torch.outer(
                torch.arange(8, device=x.device).float(), 10000 ** (-torch.arange(8, device=x.device) / 8)
            )
            first, second = x.float().chunk(2, -1)
            return torch.cat(
                (first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()), -1
            )

        q = q.float() * torch.rsqrt(q.float().pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale.float()
        self.cache.copy_(turned(k))
        keys = self.cache.float().repeat_interleave(2, 1)
        scores = turned(q) @ keys.transpose(-1, -2) / 4
        scores = scores.masked_fill(torch.ones(8, 8, device=q.device).triu(1).bool(), float("-inf"))
        return scores.softmax(-1).to(k.dtype) @ keys.to(k.dtype)


class Quantized(nn.Module):
    """Quantisation to int8 and back by hand, as after training."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Any:
        scale = x.abs().amax(1, keepdim=True) / 127
        quantized = torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)
        return self.linear(quantized.to(x.dtype) * scale), quantized


class Augmented(nn.Module):
    """Random numbers of each kind: uniform, normal, integers, choices."""

    def forward(self, x: Tensor) -> Any:
        noisy = x + torch.randn_like(x) * 0.1
        mixed = torch.lerp(x, x.flip(0), torch.rand(x.shape[0], 1, dtype=x.dtype, device=x.device))
        shift = torch.randint(0, 5, (x.shape[0],), device=x.device)
        return F.dropout(noisy, 0.25, training=True), mixed, x * shift.unsqueeze(1), F.dropout1d(x, 0.5, training=True)


def _random(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def _integers(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randint(-1000, 1000, shape, dtype=torch.int32) for shape in shapes)


_FLOATING = {
    "convolutions": (Convolutions, _random((2, 3, 16, 16))),
    "recurrent": (Recurrent, _random((4, 5, 24))),
    "statistics": (Statistics, _random((16, 96), (16, 96))),
    "functions": (Functions, _random((12, 40))),
    "image": (Image, _random((2, 8, 10, 10))),
    "encoder": (Encoder, _random((3, 10, 32))),
    "experts": (Experts, _random((12, 32))),
    "rotary": (Rotary, _random((2, 4, 8, 16), (2, 2, 8, 16))),
    "quantized": (Quantized, _random((9, 32))),
    "augmented": (Augmented, _random((20, 50))),
}


def _in(dtype: torch.dtype, inputs: Callable[[], tuple[Tensor, ...]]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs())


def ordinary() -> dict[str, Example]:
    """The models by name: those above, in float32 and in half precision, and those of tests/models.py."""
    from tests import models

    examples = {name: Example(module, inputs) for name, (module, inputs) in _FLOATING.items()}
    for n, (name, (module, inputs)) in enumerate(_FLOATING.items()):
        half = list(HALVES)[n % 2]
        examples[f"{name}_{half}"] = Example(module, _in(HALVES[half], inputs), HALVES[half])
    examples["indexing"] = Example(Indexing, lambda: (torch.randn(12, 20), torch.randint(0, 12, (12, 8))))
    examples["integers"] = Example(Integers, _integers((10, 30), (10, 30)))
    for name, case in models.CASES.items():
        if name not in ("profiled", "gemm", "array_ref", "shimmed"):
            imports = ("tests.models",) if name in ("custom",) else ()
            examples[f"tests_{name}"] = Example(
                case.module,
                case.inputs,
                torch.bfloat16 if name == "half" else torch.float32,
                dynamic=case.dynamic,
                configs=case.configs,
                imports=imports,
            )
    return examples
