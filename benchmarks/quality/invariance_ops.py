"""An operator that gives a row other bits in a batch if the environment says so, for benchmarks/quality/invariance.py.

`AOTI_PLANTED=3:place` makes step 3 vary with the place of a row; without it every step is a copy.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

VARIABLE = "AOTI_PLANTED"


@torch.library.custom_op("invariance::step", mutates_args=())
def step(x: Tensor, number: int, axis: int, rows: int) -> Tensor:
    """A copy; if it is the planted one, with another last bit where the planted fault says so.

    Args:
        axis: of the samples.
        rows: how many indices of that axis belong to a sample, one after the other; if negative, they are as far apart
            as there are samples.
    """
    planted, _, kind = os.environ.get(VARIABLE, "").partition(":")
    result = x.clone()
    if planted != str(number):
        return result
    count = x.shape[axis] // abs(rows)
    order = (-1, rows) if rows > 0 else (-rows, -1)
    samples = result.movedim(axis, 0).unflatten(0, order)
    samples = samples if rows > 0 else samples.movedim(1, 0)
    for place in range(count):
        if (
            (kind == "size" and count > 1)
            or (kind == "large" and count >= 16)
            or (kind == "place" and place > 0)
            or (kind == "odd" and count % 2 == 1)
        ):
            _change(samples[place])
    return result


def _change(sample: Tensor) -> None:
    """Changes the last bit of the first element."""
    first = sample[(0,) * sample.ndim]
    if first.dtype.is_floating_point:
        first.copy_(torch.nextafter(first, torch.full_like(first, torch.inf)))
    else:
        first.add_(1)


@step.register_fake
def _(x: Tensor, number: int, axis: int, rows: int) -> Tensor:
    return torch.empty_like(x)
