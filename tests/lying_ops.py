"""Operators that return something else than their fake kernels foretell (`--import tests.lying_ops`)."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("lying::dtype", mutates_args=())
def lies_about_dtype(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16)


@lies_about_dtype.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("lying::shape", mutates_args=())
def lies_about_shape(x: Tensor) -> Tensor:
    return x[:-1].clone()


@lies_about_shape.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("lying::strides", mutates_args=())
def lies_about_strides(x: Tensor) -> Tensor:
    return x.t().clone(memory_format=torch.contiguous_format).t()


@lies_about_strides.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("lying::pair", mutates_args=())
def lies_in_its_second_result(x: Tensor) -> tuple[Tensor, Tensor]:
    return x + 1, x.to(torch.float64)


@lies_in_its_second_result.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("lying::never", mutates_args=())
def tells_the_truth(x: Tensor) -> Tensor:
    return x.t().clone(memory_format=torch.contiguous_format).t()


@tells_the_truth.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x.t(), memory_format=torch.contiguous_format).t()


class Model(torch.nn.Module):
    """Four lies. Each is an output, so that nothing is written into its memory, which is smaller than promised."""

    def forward(self, x: Tensor, scale: float, y: Tensor) -> tuple[Tensor, ...]:
        ops = torch.ops.lying
        fine = ops.never(x * scale).sin()
        halved = ops.dtype(fine)
        shorter = ops.shape(fine + 1)
        turned = ops.strides(fine + 2)
        _, doubled = ops.pair(fine + 3)
        return halved, halved.cos(), shorter, torch.softmax(shorter, -1), turned, turned.exp(), doubled, y + 1


def program(device: str = "cpu") -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=3, max=64)
    torch.manual_seed(0)
    inputs = (torch.randn(6, 8, device=device), 2.0, torch.randn(6, 4, device=device))
    return torch.export.export(Model().eval(), inputs, dynamic_shapes=({0: rows}, None, {0: rows}))
