"""The examples of looking inside of compiled code: models that print, and models with inspectors.

Every value is a small multiple of a power of two, so that eager and compiled code compute the same bits in any order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from aoti_debug import inspect_modules, inspector, print_
from aoti_debug.package.printing.template import InspectedTensor

TORCH_PRINT = getattr(torch._higher_order_ops, "print", print_)  # torch 2.13 has the operator
WIDTH = 8


class Prints(nn.Module):
    """Print operators: positional, by keyword, dimensions, and values that are computed."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2 + 1
        TORCH_PRINT("[print: basic]\nx = {}, y = {}", x, y[0])
        TORCH_PRINT("[print: keyword]\nx={x} y={y} again x={x}", x=x[0, :2], y=y[1])
        TORCH_PRINT("[print: shapes by dimensions]\nshape: {} by {}, numel {}", y.shape[0], y.shape[1], y.numel())
        TORCH_PRINT("[print: computed values]\nmean {} max {m} norm {n:.3f}", y.mean(), m=y.max(), n=(y * y).sum())
        return y.relu()


def show(tensor: Tensor, place: InspectedTensor) -> None:
    """Prints where it is called, with the sum of the tensor and its largest magnitude."""
    found = f"{tuple(tensor.shape)} sum {tensor.double().sum().item()} absmax {tensor.abs().max().item()}"
    print(f"{place.tag} {place.phase} {place.index}: {found}")


def check(tensor: Tensor, place: InspectedTensor) -> None:
    """Raises an exception if an element is NaN."""
    found = int(tensor.isnan().sum())
    print(f"{place.tag} {place.phase} {place.index}: {found} NaN")
    if found:
        raise ValueError(f"{found} NaN in {place.tag}")


basic = inspector(show, tag="basic")
embedding = inspector(show, show, tag="tags.embedding")
attention = inspector(show, show, tag="tags.attention")
function = inspector(show, show, tag="function")
first_rank = inspector(show, tag="ranks.first", ranks=(0,))
second_rank = inspector(show, tag="ranks.second", ranks=(1,))
not_a_number = inspector(check, tag="nan")


class Double(torch.autograd.Function):
    """x * 2, inspected in both directions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result: Tensor = function(x * 2)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        result: Tensor = function(gradient * 2, phase="backward")
        return result


class Layers(nn.Module):
    """Two layers; an inspector is installed on each module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        for number, weight in enumerate(self.parameters(), 1):
            values = torch.arange(weight.numel()).remainder(3 + number) - 1.0
            weight.data = values.reshape(weight.shape) / 4

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(self.first(x).relu())
        return result


class Inspectors(nn.Module):
    """Inspectors: alone, with tags and several tensors, in an autograd.Function, by rank, on every module, for NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Layers()
        inspect_modules(self, show, show, modules="layers*")

    def forward(self, x: Tensor) -> Tensor:
        y = basic(x + 1)
        u, v = attention(embedding(y * 2), y - 3)
        z = Double.apply(u + v)
        z = second_rank(first_rank(z - 4))
        result: Tensor = self.layers(not_a_number(z * (y.sign() / y.sign())))  # 0 / 0 where y is 0
        return result


MODELS: dict[str, type[nn.Module]] = {"prints": Prints, "inspectors": Inspectors}


def example_input(device: str) -> Tensor:
    """A float32 tensor of shape (4, WIDTH)."""
    return (torch.arange(4.0 * WIDTH).reshape(4, WIDTH) / 8 - 0.5).to(device)


def nan_input(device: str) -> Tensor:
    """The same with an element because of which `Inspectors` computes NaN."""
    x = example_input(device)
    x[1, 3] = -1
    return x


def program(name: str, device: str) -> ExportedProgram:
    """The model of a name, exported on "cpu" or "cuda"."""
    with torch.no_grad():
        return torch.export.export(MODELS[name]().eval().to(device), (example_input(device),))
