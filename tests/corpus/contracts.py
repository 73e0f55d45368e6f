"""Broken promises: fakes that lie, inputs that are not what was exported, aliases that nobody expects."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.corpus.case import CPU, CUDA, Case, Example, Expected, Make


class Compressed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.corpus.compressed(x * 2)  # origin
        return y + 1


class WithoutFirst(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.corpus.without_first(x * 2)  # origin
        return y + 1


class ColumnMajor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.corpus.column_major(x * 2)  # origin
        return y + 1


class OnHost(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.corpus.on_host(x * 2)  # origin
        return y + 1


class Unaligned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.corpus.unaligned(x * 2)  # origin
        return y + 1


class MutatedAlias(nn.Module):
    """The operator returns a view with an offset, and what is written to it shows in its argument."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        base = x * 2
        tail = torch.ops.corpus_native.tail(base)  # origin
        torch.ops.corpus.add_into(tail, x[1:])
        return base, tail + 1


class Window(nn.Module):
    """Adds to one of its inputs; another may be a window on the same memory."""

    def forward(self, ring: Tensor, window: Tensor) -> Tensor:
        window.add_(1)
        return ring * 2


class Plain(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x * 2 + y) + 1


def rows(device: str) -> Tensor:
    return torch.linspace(1, 2, 128, device=device).view(8, 16)


def one_input(module: type[nn.Module]) -> Make:
    return lambda device: Example(module(), (rows(device),))


def changed(change: Callable[[Tensor], Tensor]) -> Make:
    """The plain model with another first input than it was exported with."""

    def make(device: str) -> Example:
        x = rows(device)
        return Example(Plain(), (x, x + 1), inputs=(change(x), x + 1))

    return make


def overlapping(device: str) -> Example:
    ring = torch.linspace(0, 1, 64, device=device)
    shared = ring.clone()
    return Example(Window(), (ring, ring[4:36].clone()), inputs=(shared, shared[4:36]))


def too_many_rows(device: str) -> Example:
    x = rows(device)
    dynamic = ({0: (dim := Dim("rows", min=2, max=64))}, {0: dim})
    many = torch.ones(65, 16, device=device)
    return Example(Plain(), (x, x + 1), dynamic=dynamic, inputs=(many, many))


def operator(name: str) -> Expected:
    return Expected("contract", (f"corpus*::{name}*",))


BROKEN_INPUT = Expected("contract", inputs=("x",))

CASES = (
    Case("fake_lies_about_dtype", one_input(Compressed), operator("compressed")),
    Case("fake_lies_about_shape", one_input(WithoutFirst), operator("without_first")),
    Case("fake_lies_about_strides", one_input(ColumnMajor), operator("column_major")),
    Case("fake_lies_about_device", one_input(OnHost), operator("on_host"), CUDA),
    Case("result_is_unaligned", one_input(Unaligned), operator("unaligned"), CUDA),
    Case("mutated_alias_with_offset", one_input(MutatedAlias), operator("tail"), native=True),
    Case("inputs_overlap", overlapping, Expected("contract", inputs=("ring", "window"))),
    Case("input_with_other_strides", changed(lambda x: x.t().contiguous().t()), BROKEN_INPUT),
    Case("input_of_other_dtype", changed(lambda x: x.double()), BROKEN_INPUT, CPU),
    Case("input_beyond_dynamic_range", too_many_rows, Expected("contract", inputs=("x", "y")), CPU),
    Case("input_on_the_cpu", changed(lambda x: x.cpu()), BROKEN_INPUT, CUDA),
    Case("input_on_another_gpu", changed(lambda x: x.to("cuda:1")), BROKEN_INPUT, CUDA, gpus=2),
)
