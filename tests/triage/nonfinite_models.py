"""A model that computes what is not finite, or does not, as its inputs say."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Arithmetic(nn.Module):
    """A quotient, a masked softmax, a product in float16, each in launches of its own; a mask that is handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.narrow = nn.Linear(32, 8, dtype=torch.float16)

    def forward(self, x: Tensor, divisor: Tensor, mask: Tensor, half: Tensor) -> tuple[Tensor, ...]:
        quotient = x / divisor
        scores = self.first(quotient).masked_fill(mask, float("-inf"))
        weights = torch.softmax(scores, -1)
        mixed = self.second(weights)
        scaled = half * half
        product = self.narrow(scaled)
        return torch.nan_to_num(mixed), mixed, product.float() - product.float().amax(-1, keepdim=True), scores


def inputs(
    *, x: tuple[int, int, float] | None = None, divisor: float = 2.0, masked_row: bool = False, half: float = 1.0
) -> tuple[Tensor, ...]:
    """Inputs of Arithmetic that compute nothing unusual, unless told to.

    Args:
        x: (row, column, value) of an element.
        divisor: of that element, too.
        masked_row: hides all of row 2.
        half: an element of the factor in float16.
    """
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(8, 16, generator=generator), torch.full((8, 16), 2.0)
    mask = torch.ones(8, 16, dtype=torch.bool).triu(1)
    factor = torch.ones(4, 32, dtype=torch.float16)
    if x is not None:
        row, column, value = x
        left[row, column] = value
        right[row, column] = divisor
    mask[2] |= masked_row
    factor[1, 5] = half
    return left, right, mask, factor
