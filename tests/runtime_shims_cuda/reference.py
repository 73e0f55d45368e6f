"""What the statistics of a tensor must be, by numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

STEP = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Expected:
    n_nan: int
    n_pos_inf: int
    n_neg_inf: int
    n_zero: int
    min: float | int | None  # None: no finite element
    max: float | int | None
    min_index: int
    max_index: int
    mean: float
    std: float
    hash: int
    data: bytes
    specials: tuple[int | None, int | None, int | None]  # the first NaN, infinity, negative infinity


def row_major_bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def values(tensor: torch.Tensor) -> Any:
    """float64, int64 or uint64, row-major; magnitudes of complex elements."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.is_complex():
        parts = torch.view_as_real(flat).to(torch.float64).numpy()
        with np.errstate(invalid="ignore"):
            return np.hypot(parts[:, 0], parts[:, 1])
    if flat.is_floating_point():
        exact = flat if flat.dtype is torch.float64 else flat.to(torch.float32)
        return exact.to(torch.float64).numpy()
    if flat.dtype is torch.bool:
        return flat.to(torch.int64).numpy()
    array = flat.numpy()
    return array.astype(np.uint64 if array.dtype.kind == "u" else np.int64)


def content_hash(data: bytes, step: int = STEP) -> int:
    """As runtime_shims/formats/content_hash.h says."""
    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8")
    with np.errstate(over="ignore"):
        terms = _mix(words + np.arange(1, len(words) + 1, dtype="u8") * np.uint64(step))
        total = int(terms.sum(dtype="u8")) if len(words) else 0
        return int(_mix(np.array([(total + len(data)) & MASK], "u8"))[0])


def _mix(x: Any) -> Any:
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _first(holds: Any) -> int | None:
    return int(holds.argmax()) if holds.any() else None


def of(tensor: torch.Tensor) -> Expected:
    found, data = values(tensor), row_major_bytes(tensor)
    finite = np.flatnonzero(np.isfinite(found))
    counts = (int(np.isnan(found).sum()), int((found == np.inf).sum()), int((found == -np.inf).sum()))
    zeros = int((found == 0).sum())
    specials = (_first(np.isnan(found)), _first(found == np.inf), _first(found == -np.inf))
    if len(finite) == 0:
        return Expected(*counts, zeros, None, None, 0, 0, np.nan, np.nan, content_hash(data), data, specials)
    lowest, highest = int(finite[found[finite].argmin()]), int(finite[found[finite].argmax()])
    wide = found[finite].astype(np.longdouble)
    mean = wide.mean()
    std = float(np.sqrt(((wide - mean) ** 2).mean()))
    low, high = found[lowest].item(), found[highest].item()
    return Expected(*counts, zeros, low, high, lowest, highest, float(mean), std, content_hash(data), data, specials)
