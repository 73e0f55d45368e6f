"""Tensors to take statistics of."""

from __future__ import annotations

from collections.abc import Callable

import torch

FLOATS = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
INTEGERS = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
)
DTYPES = (*FLOATS, *COMPLEX, *INTEGERS)


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def random_bits(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Every bit at random: all magnitudes, NaN and infinities. A bool is 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(torch.bool)
    return torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8).view(dtype)


def ordinary(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Numbers of everyday size with some zeros, and every special value of the dtype."""
    generator = torch.Generator().manual_seed(seed)
    if dtype in INTEGERS:
        return random_bits(dtype, count, seed)
    if dtype in COMPLEX:
        parts = torch.randn(count, 2, generator=generator, dtype=torch.float64)
        parts[::7] = 0
        parts[3::11, 0] = torch.inf
        parts[5::13, 1] = torch.nan
        part = {torch.complex32: torch.float16, torch.complex64: torch.float32}.get(dtype, torch.float64)
        return torch.view_as_complex(parts.to(part))
    numbers = torch.randn(count, generator=generator, dtype=torch.float64) * 3
    numbers[::7] = 0
    numbers[3::11] = torch.nan
    numbers[5::13] = torch.inf
    numbers[6::17] = -torch.inf
    return numbers.to(torch.float32).to(dtype) if dtype is not torch.float64 else numbers


# Of a tensor of 1008 elements.
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.view(24, 42).t(),
    "every other": lambda t: t[::2],
    "column": lambda t: t.view(24, 42)[:, 5],
    "inner slice": lambda t: t.view(24, 42)[:, 3:20],
    "permuted": lambda t: t.view(4, 6, 2, 21).permute(2, 0, 3, 1),
    "expanded": lambda t: t[:42].view(1, 42).expand(5, 42),
    "expanded inside": lambda t: t[:42].view(42, 1).expand(42, 5),
    "offset": lambda t: t[1:],
    "flipped pieces": lambda t: t.view(2, 2, 2, 2, 3, 3, 7).permute(6, 5, 4, 3, 2, 1, 0),
    "scalar": lambda t: t[17],
    "small": lambda t: t.view(24, 42)[3:7, 5:12],
    "empty": lambda t: t.view(24, 42)[:, 4:4],
}
