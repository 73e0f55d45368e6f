"""A model whose inputs, weight and buffer lead through launches of several kinds to outputs of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Paths(nn.Module):
    """Each argument and each weight reaches outputs that no other one reaches."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 8)
        self.scale = nn.Parameter(torch.ones(8, 16))
        self.register_buffer("shift", torch.linspace(1, 2, 128).view(8, 16))
        with torch.no_grad():
            for parameter in (*self.first.parameters(), *self.second.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)

    def forward(
        self, x: Tensor, moved: Tensor, joined: Tensor, half: Tensor, scores: Tensor, mask: Tensor, handled: Tensor
    ) -> tuple[Tensor, ...]:
        hidden = self.second(nn.functional.gelu(self.first(x)))
        turned = moved.view(16, 8).permute(1, 0)[2:7]
        turned = turned - turned.mean(0)
        both = torch.cat([joined, joined.new_ones(8, 16)], dim=0) * 2
        narrow = half * half.sum(-1, keepdim=True) - half.amax()
        weights = torch.softmax(scores + mask, -1)
        scaled = self.scale.exp() * 0.5
        shifted = self.shift.cos()
        rooted = torch.sqrt(torch.where(torch.isfinite(handled), handled, 1.0))
        return hidden, turned, both, narrow, weights, scaled, shifted, rooted


def inputs(**elements: Any) -> tuple[Tensor, ...]:
    """Inputs that compute nothing unusual but values are given: `x={(3, 7): inf}`."""
    generator = torch.Generator().manual_seed(1)
    made = {name: torch.randn(8, 16, generator=generator) for name in ("x", "moved", "joined", "half", "scores")}
    made["half"] = made["half"].to(torch.bfloat16)
    made["mask"] = torch.zeros(8, 16).masked_fill(torch.ones(8, 16, dtype=torch.bool).triu(1), float("-inf"))
    made["handled"] = torch.rand(8, 16, generator=generator)
    for name, values in elements.items():
        for index, value in values.items():
            made[name][index] = value
    return tuple(made.values())
