"""A model with inspectors: of one and of two tensors, within a branch, and on every module below it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aoti_debug import inspect_modules, inspector
from aoti_debug.package.printing.template import InspectedTensor


def show(tensor: Tensor, place: InspectedTensor) -> None:
    """Prints where it is called, and the sum of the tensor."""
    print(f"{place.tag} {place.phase} {place.index}: {tuple(tensor.shape)} {float(tensor.double().sum()):.6f}")


attention = inspector(show, tag="attn.0")
mlp = inspector(show, tag="mlp")
second = inspector(show, tag="second", ranks=(1,))


class Model(nn.Module):
    """Each inspector sees what its lines name, and the modules' inspectors their results."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        inspect_modules(self, show, modules="layers*")

    def forward(self, x: Tensor) -> Tensor:
        y = attention(x.sin())
        u, v = mlp(y.relu(), y * 2)
        branch: Tensor = torch.cond(u.sum() > 0, lambda z: mlp(z) + 1, lambda z: z - 1, (u,))
        result: Tensor = second(self.layers(branch + v))
        return result
