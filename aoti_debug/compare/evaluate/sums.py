"""The terms of the sums that an operator computes, in which rounding adds up. Runs in a child process."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.arithmetic import Narrow, split
from aoti_debug.package.reference.program import Node

if TYPE_CHECKING:
    pass


_BYTES = 8 << 20  # bytes of a tensor that are looked at together


def terms_of(node: Node, args: list[Any]) -> int:
    """The length of the longest sum that an operator computes: how far rounding can add up."""
    import torch

    tensors = [item for item in args if isinstance(item, torch.Tensor)]
    if not tensors:
        return 1
    name = node.target.split(".")[1] if node.target.count(".") else node.target
    sizes = [int(size) for t in node.types[:1] if t is not None for size in t.shape if size.isdigit()]
    outputs = functools.reduce(lambda a, b: a * b, sizes, 1)
    if name in ("addmm", "baddbmm", "mm", "bmm", "linear", "addmv", "mv", "dot"):
        terms = tensors[1 if name in ("addmm", "baddbmm", "addmv") else 0].shape[-1]
    elif "convolution" in name and len(tensors) > 1:
        terms = tensors[1].numel() // max(tensors[1].shape[0], 1)
    elif "attention" in name and len(tensors) > 1:
        terms = tensors[0].shape[-1] + tensors[1].shape[-2]
    else:
        terms = max(t.numel() for t in tensors) // max(outputs, 1)
    return int(terms)


def largest_of(args: list[Any]) -> float:
    """The product of the largest finite magnitudes of the tensors that an operator reads, those below 1 as 1."""
    import torch

    largest = 1.0
    for item in args:
        if isinstance(item, torch.Tensor | Narrow) and item.dtype == torch.float64:
            parts = item.pieces(0, _BYTES) if isinstance(item, Narrow) else split(item, _BYTES)
            found = [float(torch.nan_to_num(part.abs(), 0.0, 0.0).amax()) for part in parts if part.numel()]
            largest *= max([1.0, *found])
    return largest
