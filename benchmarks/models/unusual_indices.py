"""Models of unusual indices and shapes, for unusual_models.py: ties, duplicates, masks, no elements."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


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
