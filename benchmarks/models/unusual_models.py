"""Models of kinds that are seldom compared, for benchmarks/comparison/compare.py: none of their kernels is wrong."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.models import unusual_indices, unusual_numbers
from benchmarks.models.planted_models import Example


def _numbers(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


_BAGS = (torch.randint(0, 40, (30,)), torch.tensor([0, 4, 4, 9, 20, 29]))


def unusual() -> dict[str, Example]:
    """The models by name."""
    mask = lambda: (torch.randn(12, 40), torch.rand(12, 40) < 0.4)  # noqa: E731
    rows = lambda: (torch.randn(20, 24), torch.randint(0, 8, (20, 3)))  # noqa: E731
    classes = lambda: (torch.randn(16, 10), torch.randint(0, 10, (16,)))  # noqa: E731
    plain = {
        "int8": (unusual_numbers.Int8, _numbers((24, 32))),
        "complex": (unusual_numbers.Complex, _numbers((12, 20), (12, 20))),
        "bags": (unusual_indices.Bags, lambda: (*_BAGS, torch.rand(30))),
        "accumulated": (unusual_indices.Accumulated, rows),
        "ties": (unusual_indices.Ties, _numbers((12, 40))),
        "running": (unusual_numbers.Running, _numbers((12, 200))),
        "normalised": (unusual_numbers.Normalised, _numbers((2, 16, 9, 9))),
        "resized": (unusual_indices.Resized, _numbers((2, 4, 11, 12), (2, 6, 6, 2))),
        "fourier": (unusual_numbers.Fourier, _numbers((16, 64))),
        "searched": (unusual_indices.Searched, _numbers((12, 30), (50,))),
        "masks": (unusual_indices.Masks, mask),
        "empty": (unusual_indices.Empty, lambda: (torch.randn(5, 24), torch.randn(0, 24))),
        "scalars": (unusual_numbers.Scalars, lambda: (torch.randn(9, 33), torch.tensor(0.7), torch.tensor(4))),
        "magnitudes": (unusual_numbers.Magnitudes, _numbers((12, 40))),
        "handled": (unusual_numbers.Handled, mask),
        "hashes": (unusual_numbers.Hashes, lambda: (torch.randint(-(1 << 62), 1 << 62, (12, 40)),)),
        "algebra": (unusual_numbers.Algebra, _numbers((12, 12), (12, 5))),
        "losses": (unusual_numbers.Losses, classes),
        "windows": (unusual_indices.Windows, _numbers((2, 8, 13, 13))),
        "eighths": (unusual_numbers.Eighths, _numbers((12, 64))),
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
