"""Models of unusual numbers, for unusual_models.py: small, large, complex, of eight bits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Int8(nn.Module):
    """Products of int8 with int32 sums, weights of 4 bits that are unpacked, zero points, saturation."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (32, 32), dtype=torch.int8))
        self.register_buffer("packed", torch.randint(0, 256, (32, 16), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(32) / 100)

    def forward(self, x: Tensor) -> Any:
        step = x.abs().amax(1, keepdim=True).clamp_min(1e-6) / 127
        narrow = (x / step).round().clamp(-128, 127).to(torch.int8)
        product = torch._int_mm(narrow, self.weight)
        low, high = (self.packed & 15).to(torch.int8) - 8, (self.packed >> 4).to(torch.int8) - 8
        weight = torch.stack((low, high), -1).reshape(32, 32).to(x.dtype) * self.scale.unsqueeze(1)
        unsigned = (product.float() * step * self.scale / 0.05 + 3).round().clamp(0, 255).to(torch.uint8)
        return product.to(x.dtype) * step * self.scale, F.linear(x, weight), unsigned, narrow + narrow


class Complex(nn.Module):
    """Complex numbers: products, polar form, conjugates, matrices."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        z, w = torch.complex(x, y), torch.polar(x.abs(), y)
        turned = torch.view_as_real(torch.view_as_complex(x.reshape(12, 10, 2)) * z[:, :10])
        return z * w.conj(), (z / (w + 1)).abs(), (z @ w.t()).angle().cos(), turned, z.real.sum(0), (z * 2).imag


class Running(nn.Module):
    """Sums, products, extremes and logarithms of sums along a dimension."""

    def forward(self, x: Tensor) -> Any:
        return (
            x.cumsum(1),
            (1 + x / 50).cumprod(0),
            *x.cummax(1),
            x.logcumsumexp(1),
            x.flip(1).cumsum(1) - x.cumsum(0),
            (x > 0).cumsum(1),
        )


class Normalised(nn.Module):
    """Normalisation of numbers far from zero: by groups, instances, layers, root mean squares, batches."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.instance = nn.GroupNorm(4, 16), nn.InstanceNorm2d(16, affine=True)
        self.layer, self.root = nn.LayerNorm((9, 9)), nn.RMSNorm(9)
        self.batch = nn.BatchNorm2d(16)

    def forward(self, x: Tensor) -> Any:
        far = x * 3 + 60
        return self.group(far), self.instance(far), self.layer(far), self.root(far), F.silu(self.batch(far)), far.std(1)


class Fourier(nn.Module):
    """Fourier transforms: of real and complex numbers, in two dimensions, a filter, a spectrogram."""

    def forward(self, x: Tensor) -> Any:
        spectrum = torch.fft.rfft(x)
        kept = spectrum * (torch.arange(spectrum.shape[-1], device=x.device) < 9)
        plane = torch.fft.fft2(x.reshape(4, 4, -1))
        frames = torch.fft.rfft(x.unfold(1, 16, 8) * torch.hann_window(16, device=x.device)).abs().square()
        return torch.fft.irfft(kept, x.shape[-1]), plane.abs(), torch.fft.fftshift(plane.real, -1), frames.log1p()


class Scalars(nn.Module):
    """Tensors of no dimension: as inputs, results, factors, indices."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.3))

    def forward(self, x: Tensor, shift: Tensor, place: Tensor) -> Any:
        total = x.sum() * self.gain
        chosen = x.index_select(0, place.reshape(1)).squeeze(0)
        return total, total / shift, shift.sin() ** 2, chosen + shift, torch.stack([total, shift, x.mean()]), x.amax()


class Magnitudes(nn.Module):
    """Subnormal, tiny and huge numbers: products that vanish or overflow, sums that cancel, quotients."""

    def forward(self, x: Tensor) -> Any:
        limits = torch.finfo(x.dtype)
        tiny, huge = x * limits.tiny, x * (limits.max / 8)
        return (
            tiny * 0.125,
            (tiny / 16).sum(1),
            huge * 4,
            huge.sum(1),
            huge * tiny,
            x / (tiny + limits.tiny / 4),
            (huge.sign() * huge.abs().sqrt()).softmax(1),
            tiny.abs().sqrt() + huge.abs().rsqrt(),
            torch.hypot(huge / 16, huge / 16),
        )


class Handled(nn.Module):
    """NaN and infinities that are handled: by where, nan_to_num, masks of whole rows, isfinite."""

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        logarithm = torch.where(x > 0, x.log(), torch.zeros_like(x))
        rows = torch.softmax(x.masked_fill(mask, float("-inf")), 1).nan_to_num(0.0)
        ratio = x / (x * mask)
        infinite = x.masked_fill(mask, float("inf"))
        return (
            logarithm.sum(1),
            rows @ x.t(),
            torch.where(ratio.isfinite(), ratio, x).mean(0),
            (infinite - infinite.flip(0)).nan_to_num(1.0, 2.0, -2.0),
            infinite.amin(1) + infinite.exp().reciprocal().sum(1),
            torch.nanmean(torch.where(mask, float("nan"), x), 1),
            x.sqrt().nansum(0),
        )


class Hashes(nn.Module):
    """Large integers: products that wrap, shifts, remainders of negative numbers, conversions."""

    def forward(self, x: Tensor) -> Any:
        mixed = (x * 0x9E3779B97F4A7C1) ^ (x >> 13)
        return (
            mixed % 1_000_003,
            (mixed >> 7) & 0xFFFF,
            torch.remainder(x, -977),
            torch.fmod(x, 977),
            x.double() * 1.5,
            (mixed % 65_537).sum(1) * (1 << 33),
            x.to(torch.int32) + 1,
            torch.bitwise_not(x).to(torch.int16),
            mixed.float(),
        )


class Algebra(nn.Module):
    """Factorisations, solutions and determinants of matrices."""

    def forward(self, x: Tensor, right: Tensor) -> Any:
        positive = x @ x.t() + 4 * torch.eye(x.shape[0], device=x.device)
        factor = torch.linalg.cholesky(positive)
        solved = torch.linalg.solve(positive, right)
        return factor @ solved, torch.linalg.inv(positive) * 2, torch.linalg.det(positive).log(), factor.tril(-1).sum()


class Losses(nn.Module):
    """Losses over classes and numbers, with ignored targets, weights and smoothing."""

    def forward(self, x: Tensor, target: Tensor) -> Any:
        return (
            F.cross_entropy(x, target, ignore_index=3),
            F.cross_entropy(x, target, label_smoothing=0.1, reduction="none"),
            F.binary_cross_entropy_with_logits(x, (target.unsqueeze(1) > 2).to(x.dtype).expand_as(x)),
            F.huber_loss(x, x.roll(1, 0), delta=0.3),
            F.triplet_margin_loss(x, x.flip(0), x.roll(1, 0)),
        )


class Eighths(nn.Module):
    """Numbers of eight bits: stored, read again, scaled by their largest."""

    def forward(self, x: Tensor) -> Any:
        scale = x.abs().amax(1, keepdim=True) / 448
        narrow = (x / scale).to(torch.float8_e4m3fn)
        return narrow.to(x.dtype) * scale, (x * 100).to(torch.float8_e5m2).float().sum(1), narrow.float().softmax(1)
