"""Models of kinds that are seldom compared, for benchmarks/compare.py: none of their kernels may be called wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from planted_models import Example
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


class Bags(nn.Module):
    """Bags of embeddings: sums, means, maxima, with weights, with empty bags."""

    def __init__(self) -> None:
        super().__init__()
        self.sums, self.means = nn.EmbeddingBag(40, 16, mode="sum"), nn.EmbeddingBag(40, 16, mode="mean")
        self.largest = nn.EmbeddingBag(40, 16, mode="max")

    def forward(self, index: Tensor, offsets: Tensor, weights: Tensor) -> Any:
        summed = self.sums(index, offsets, per_sample_weights=weights)
        return summed, F.relu(self.means(index, offsets)) * 2, self.largest(index, offsets) - summed


class Accumulated(nn.Module):
    """Scatters whose indices repeat: sums, extremes, means, and plain stores of equal numbers."""

    def forward(self, x: Tensor, index: Tensor) -> Any:
        zeros = torch.zeros(8, x.shape[1], dtype=x.dtype, device=x.device)
        rows = index[:, :1].expand_as(x)
        return (
            zeros.index_put((index[:, 0],), x * 2, accumulate=True),
            zeros.index_put((index[:, 0],), torch.ones_like(x)),
            zeros.scatter_add(0, rows, x),
            zeros.scatter_reduce(0, rows, x, "amax", include_self=False),
            zeros.scatter_reduce(0, rows, x.exp(), "mean"),
            zeros.index_add(0, index[:, 0], x, alpha=0.5) + 1,
        )


class Ties(nn.Module):
    """Choices among equal elements: top-k, extremes, medians, sorts in both directions."""

    def forward(self, x: Tensor) -> Any:
        coarse = (x * 2).round()
        return (
            *torch.topk(coarse, 5, dim=1),
            *torch.topk(coarse, 3, dim=0, largest=False),
            *coarse.max(0),
            coarse.argmin(1),
            *coarse.median(1),
            *torch.sort(coarse, descending=True),
            torch.argsort(coarse, 0) * 2,
            coarse.kthvalue(4, 1).values,
        )


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


class Resized(nn.Module):
    """Interpolation: bicubic, with antialiasing, of volumes, to smaller sizes; sampling along a grid."""

    def forward(self, x: Tensor, grid: Tensor) -> Any:
        return (
            F.interpolate(x, size=(17, 23), mode="bicubic", align_corners=True),
            F.interpolate(x, size=(5, 7), mode="bilinear", antialias=True),
            F.interpolate(x.unsqueeze(2), size=(3, 8, 15), mode="trilinear"),
            F.interpolate(x, size=(7, 5), mode="nearest-exact"),
            F.grid_sample(x, grid.tanh(), mode="bilinear", padding_mode="border", align_corners=False),
            F.interpolate(x, size=(6, 6), mode="area"),
        )


class Fourier(nn.Module):
    """Fourier transforms: of real and complex numbers, in two dimensions, a filter, a spectrogram."""

    def forward(self, x: Tensor) -> Any:
        spectrum = torch.fft.rfft(x)
        kept = spectrum * (torch.arange(spectrum.shape[-1], device=x.device) < 9)
        plane = torch.fft.fft2(x.reshape(4, 4, -1))
        frames = torch.fft.rfft(x.unfold(1, 16, 8) * torch.hann_window(16, device=x.device)).abs().square()
        return torch.fft.irfft(kept, x.shape[-1]), plane.abs(), torch.fft.fftshift(plane.real, -1), frames.log1p()


class Searched(nn.Module):
    """Sorted tables: searches, buckets, histograms, ranks."""

    def forward(self, x: Tensor, table: Tensor) -> Any:
        ordered = table.sort().values
        place = torch.searchsorted(ordered, x)
        bucket = torch.bucketize(x, ordered[::3], right=True)
        counted = torch.bincount(bucket.reshape(-1), minlength=20)
        return place, bucket * 2, ordered[place.clamp(max=ordered.numel() - 1)] - x, counted, x.argsort(1).argsort(1)


class Masks(nn.Module):
    """Booleans: logic, any and all, counts, scattered masks, as indices, as numbers."""

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        other = x > 0.3
        return (
            (mask & other) ^ ~mask | other.flip(1),
            mask.any(1) & other.all(0)[: mask.shape[0]],
            torch.where(mask, x, -x).masked_fill(other, 0),
            x.masked_scatter(mask, x.flip(0)),
            mask.sum(0),
            mask.float() @ other.t().float(),
            torch.count_nonzero(other, 1),
            mask.logical_xor(other).to(torch.uint8) + 1,
        )


class Empty(nn.Module):
    """Tensors without elements, beside others."""

    def forward(self, x: Tensor, none: Tensor) -> Any:
        joined = torch.cat([none, x, x[:0] * 2])
        return joined.exp(), none.sum(0), (none @ x.t()).sum(), none.relu() + 1, x[:, 3:3].sum(1), none.prod(0) * x[0]


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


class Windows(nn.Module):
    """Windows over images: unfolding, folding, pooling with indices, dilated, grouped and transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.deep, self.wide = nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.Conv2d(8, 4, 3, dilation=2)
        self.back = nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1, groups=2)

    def forward(self, x: Tensor) -> Any:
        patches = F.unfold(x, 3, stride=2)
        return (
            F.fold(patches, x.shape[-2:], 3, stride=2),
            *F.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.adaptive_max_pool2d(x, 3) + 1,
            F.gelu(self.deep(x)),
            self.wide(x).sigmoid(),
            self.back(x),
            F.lp_pool2d(x.abs(), 2, 3),
        )


class Eighths(nn.Module):
    """Numbers of eight bits: stored, read again, scaled by their largest."""

    def forward(self, x: Tensor) -> Any:
        scale = x.abs().amax(1, keepdim=True) / 448
        narrow = (x / scale).to(torch.float8_e4m3fn)
        return narrow.to(x.dtype) * scale, (x * 100).to(torch.float8_e5m2).float().sum(1), narrow.float().softmax(1)


def _numbers(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


_BAGS = (torch.randint(0, 40, (30,)), torch.tensor([0, 4, 4, 9, 20, 29]))


def unusual() -> dict[str, Example]:
    """The models by name."""
    mask = lambda: (torch.randn(12, 40), torch.rand(12, 40) < 0.4)  # noqa: E731
    rows = lambda: (torch.randn(20, 24), torch.randint(0, 8, (20, 3)))  # noqa: E731
    classes = lambda: (torch.randn(16, 10), torch.randint(0, 10, (16,)))  # noqa: E731
    plain = {
        "int8": (Int8, _numbers((24, 32))),
        "complex": (Complex, _numbers((12, 20), (12, 20))),
        "bags": (Bags, lambda: (*_BAGS, torch.rand(30))),
        "accumulated": (Accumulated, rows),
        "ties": (Ties, _numbers((12, 40))),
        "running": (Running, _numbers((12, 200))),
        "normalised": (Normalised, _numbers((2, 16, 9, 9))),
        "resized": (Resized, _numbers((2, 4, 11, 12), (2, 6, 6, 2))),
        "fourier": (Fourier, _numbers((16, 64))),
        "searched": (Searched, _numbers((12, 30), (50,))),
        "masks": (Masks, mask),
        "empty": (Empty, lambda: (torch.randn(5, 24), torch.randn(0, 24))),
        "scalars": (Scalars, lambda: (torch.randn(9, 33), torch.tensor(0.7), torch.tensor(4))),
        "magnitudes": (Magnitudes, _numbers((12, 40))),
        "handled": (Handled, mask),
        "hashes": (Hashes, lambda: (torch.randint(-(1 << 62), 1 << 62, (12, 40)),)),
        "algebra": (Algebra, _numbers((12, 12), (12, 5))),
        "losses": (Losses, classes),
        "windows": (Windows, _numbers((2, 8, 13, 13))),
        "eighths": (Eighths, _numbers((12, 64))),
    }
    examples = {name: Example(module, inputs) for name, (module, inputs) in plain.items()}
    for name, dtype in (
        ("running", torch.bfloat16),
        ("normalised", torch.float16),
        ("normalised", torch.bfloat16),
        ("accumulated", torch.bfloat16),
        ("ties", torch.float16),
        ("magnitudes", torch.float16),
        ("magnitudes", torch.bfloat16),
        ("handled", torch.float16),
        ("losses", torch.bfloat16),
        ("windows", torch.bfloat16),
        ("eighths", torch.bfloat16),
        ("scalars", torch.float16),
        ("magnitudes", torch.float64),
    ):
        module, inputs = plain[name]
        examples[f"{name}_{str(dtype).removeprefix('torch.')}"] = Example(module, _in(dtype, inputs), dtype)
    return examples


def _in(dtype: torch.dtype, inputs: Callable[[], tuple[Tensor, ...]]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs())
