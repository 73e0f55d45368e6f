"""Guesses, from shapes, the elements of a kernel's arguments that one element of its result is computed from.

Shapes do not tell how a kernel indexes, so a placement is a guess: the caller computes the result from it and compares
that with what the launch wrote.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import unravel

if TYPE_CHECKING:
    from torch import Tensor

MAX_ELEMENTS = 64  # compared besides the one in question
MAX_IN_ROW = 1 << 22


@dataclass(frozen=True)
class Placement:
    """Elements of the arguments that belong together.

    Attributes:
        before: the values before the launch by parameter, where the shape fits: 0-d, or 1-d with one entry per lane.
        after: the values after it, likewise.
        lane: the lane of the element in question; None if the result has one element for the row.
    """

    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    lane: int | None


@dataclass(frozen=True)
class LaunchTensors:
    """The tensors of a launch by parameter: before it, and after it those that it wrote."""

    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by parameter."""
        return {name: tuple(t.shape) for name, t in {**self.before, **self.after}.items()}


def element_by_element(arguments: LaunchTensors, result: str, element: int) -> Placement:
    """The placement for a kernel without a reduction: the element, and others for comparison."""
    import torch

    shape = tuple(arguments.after[result].shape)
    count = math.prod(shape)
    others = range(0, count, max(1, count // MAX_ELEMENTS))
    flat = torch.tensor([element, *(other for other in others if other != element)])

    def take(tensor: Tensor) -> Tensor | None:
        whole = _as_shape(tensor, shape)
        return None if whole is None else _pick(whole, flat, shape)

    return Placement(_apply(arguments.before, take), _apply(arguments.after, take), 0)


def rows(arguments: LaunchTensors, result: str, element: int) -> Iterator[Placement]:
    """Placements for a kernel with a reduction: the row along the reduced dimensions, for every choice of those."""
    shapes = arguments.shapes()
    whole = max(shapes.values(), key=math.prod)
    for axes in _reduced_axes(len(whole)):
        location = _locate(shapes[result], whole, axes, element)
        if location is None or math.prod(whole[axis] for axis in axes) > MAX_IN_ROW:
            continue
        fixed, lane = location

        def take(tensor: Tensor, fixed: Mapping[int, int] = fixed, axes: tuple[int, ...] = axes) -> Tensor | None:
            return _row(tensor, whole, axes, fixed)

        yield Placement(_apply(arguments.before, take), _apply(arguments.after, take), lane)


def _apply(tensors: Mapping[str, Tensor], take: object) -> dict[str, Tensor]:
    assert callable(take)
    values = {name: take(tensor) for name, tensor in tensors.items()}
    return {name: value for name, value in values.items() if value is not None}


def _reduced_axes(dimensions: int) -> list[tuple[int, ...]]:
    """Candidates for the reduced dimensions: the last, the last two, …, then any other."""
    suffixes = [tuple(range(start, dimensions)) for start in reversed(range(dimensions))]
    every = range(1, dimensions + 1)
    others = [axes for size in every for axes in itertools.combinations(range(dimensions), size)]
    return list(dict.fromkeys((*suffixes, *others)))[:32]


def _as_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The tensor broadcast to a shape, or reshaped if it has as many elements; None if neither is possible."""
    try:
        return tensor.broadcast_to(shape)
    except RuntimeError:
        return tensor.reshape(shape) if tensor.numel() == math.prod(shape) else None


def _pick(tensor: Tensor, flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    import torch

    if not shape:
        return tensor.reshape(1)
    return tensor[torch.unravel_index(flat, shape)]


def _locate(
    shape: tuple[int, ...], whole: tuple[int, ...], axes: tuple[int, ...], element: int
) -> tuple[dict[int, int], int | None] | None:
    """The coordinates of an element of `shape` in the kept dimensions, and its lane along the reduced ones."""
    kept = [d for d in range(len(whole)) if d not in axes]
    if math.prod(shape) == math.prod(whole):
        at = unravel(element, whole)
        lane = 0
        for axis in axes:
            lane = lane * whole[axis] + at[axis]
        return {d: at[d] for d in kept}, lane
    if math.prod(shape) == math.prod(whole[d] for d in kept):
        at = unravel(element, tuple(whole[d] for d in kept))
        return dict(zip(kept, at, strict=True)), None
    return None


def _row(tensor: Tensor, whole: tuple[int, ...], axes: tuple[int, ...], fixed: Mapping[int, int]) -> Tensor | None:
    remaining = tuple(size for d, size in enumerate(whole) if d not in axes)
    if tensor.numel() == 1:
        return tensor.reshape(())
    if tensor.numel() == math.prod(remaining) and tensor.numel() != math.prod(whole) and remaining:
        return tensor.reshape(remaining)[tuple(fixed[d] for d in sorted(fixed))].reshape(())
    full = _as_shape(tensor, whole)
    if full is None:
        return None
    index = tuple(fixed.get(d, slice(None)) for d in range(len(whole)))
    return full[index].reshape(-1)
