"""A model whose sums several threads add up, for benchmarks/differences/same_model_elsewhere.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.planted_models import Example

_ROW = 7777  # not a power of two: the halves of such sums are those that one thread adds up, too


class Reductions(nn.Module):
    """Sums, norms and a softmax over many elements, a long matrix product, a sort and an argmax of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(_ROW, 16) / 64)

    def forward(self, x: Tensor) -> Any:
        total, spread = x.sum(), x.var()
        normal = (x - x.mean()) / spread.sqrt()
        probability = torch.softmax(normal.flatten(), dim=0).view_as(x)
        rows = probability.sum(dim=1)
        product = normal @ self.weight
        ordered, index = torch.sort(product.round(decimals=2), dim=1, stable=True)
        best = torch.argmax(product, dim=1)
        return total, spread, probability.amax(), rows, product, ordered, index, best, normal.bfloat16().sum(dim=1)


ELSEWHERE: dict[str, Example] = {"reductions": Example(Reductions, lambda: (torch.randn(125, _ROW),))}
