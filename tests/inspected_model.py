"""A model with inspectors: of one and of two tensors, and within a branch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aoti_debug import inspector


def ignore(tensor: Tensor, place: object) -> None:
    """Looks at nothing."""


attention = inspector(ignore, tag="attn.0")
mlp = inspector(ignore, tag="mlp")


class Model(nn.Module):
    """Each inspector sees what its lines name."""

    def forward(self, x: Tensor) -> Tensor:
        y = attention(x.sin())
        u, v = mlp(y.relu(), y * 2)
        branch: Tensor = torch.cond(u.sum() > 0, lambda z: mlp(z) + 1, lambda z: z - 1, (u,))
        return branch + v
