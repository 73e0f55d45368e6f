"""Wrong decompositions of layers, for `benchmarks.triage.public_reports.planted`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[..., Any]


def softmax_by_exponentials(x: Any, dim: int, _: Any) -> Any:
    """A softmax that does not subtract the largest number before it takes exponentials."""
    powers = x.exp()
    return powers / powers.sum(dim, keepdim=True)


def layer_norm_without_eps(x: Any, _: Any, weight: Any, bias: Any, __: float) -> Any:
    """A layer norm of the last dimension that divides by the plain deviation."""
    mean = x.mean(-1, keepdim=True)
    scale = (x - mean).square().mean(-1, keepdim=True).rsqrt()
    return (x - mean) * scale * weight + bias, mean, scale


def pool_padded_with_zeros(x: Any, size: Any, stride: Any = (), padding: Sequence[int] = (0,), *more: Any) -> Any:
    """A maximum over windows to whose edges zeros belong."""
    import torch

    if not any(padding):
        return NotImplemented
    wide = torch.nn.functional.pad(x, [padding[-1], padding[-1], padding[0], padding[0]])
    return torch.ops.aten.max_pool2d_with_indices.default(wide, size, stride, [0, 0], *more)


def correction_lost(node: Any) -> None:
    """Replaces a product with n / (n - 1), by which a batch norm corrects the variance that it keeps."""
    factor = node.args[1]
    if isinstance(factor, float) and 1 < factor < 1.1:
        node.replace_all_uses_with(node.args[0])


def without_tail(right: Function) -> Function:
    """A sum over the last dimension that leaves out what is behind the last 16 numbers that fill a vector."""

    def wrong(x: Any, dims: Any = None, *args: Any, **keywords: Any) -> Any:
        from torch._inductor.lowering import slice_

        size = int(x.get_size()[-1])
        is_last = dims in ([-1], [len(x.get_size()) - 1]) and size > 16
        return right(slice_(x, -1, 0, size - size % 16) if is_last else x, dims, *args, **keywords)

    return wrong


def with_itself(right: Function) -> Function:
    """A reduction by an index that counts what was in the tensor before, whatever it is told."""
    return lambda x, dim, index, source, reduce, include_self=True: right(x, dim, index, source, reduce)


def both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    """Two faults."""

    def plant() -> None:
        first()
        second()

    return plant
