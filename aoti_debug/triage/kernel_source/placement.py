"""Which elements of a kernel's arguments belong to one element of its result, guessed from their shapes.

The shapes do not say what a kernel indexes, so a placement is a proposal: whoever uses it computes the result from it
and compares that with what the launch left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoti_debug.values import unravel

if TYPE_CHECKING:
    from torch import Tensor

MOST_ELEMENTS = 64  # beside the one in question, for comparison
MOST_IN_ROW = 1 << 22


@dataclass(frozen=True)
class Placement:
    """
    Attributes:
        before, after: of each argument that fits: 0-d, or 1-d with one entry a lane.
        lane: the element in question; None where the result has one element for the row.
    """

    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    lane: int | None


@dataclass(frozen=True)
class ArgumentLayouts:
    """The tensors of a launch by parameter: what they held before it, and what it left."""

    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(t.shape) for name, t in {**self.before, **self.after}.items()}


def element_by_element(arguments: ArgumentLayouts, result: str, element: int) -> Placement:
    """For a kernel that reduces nothing: the element, and others for comparison."""
    import torch

    shape = tuple(arguments.after[result].shape)
    count = math.prod(shape)
    others = range(0, count, max(1, count // MOST_ELEMENTS))
    flat = torch.tensor([element, *(other for other in others if other != element)])

    def take(tensor: Tensor) -> Tensor | None:
        whole = _as_shape(tensor, shape)
        return None if whole is None else _pick(whole, flat, shape)

    return Placement(_all(arguments.before, take), _all(arguments.after, take), 0)


def rows(arguments: ArgumentLayouts, result: str, element: int) -> Iterator[Placement]:
    """For a kernel that reduces: all that lies on the reduced dimensions, for every choice of those."""
    shapes = arguments.shapes()
    whole = max(shapes.values(), key=math.prod)
    for axes in _choices(len(whole)):
        place = _locate(shapes[result], whole, axes, element)
        if place is None or math.prod(whole[axis] for axis in axes) > MOST_IN_ROW:
            continue
        fixed, lane = place

        def take(tensor: Tensor, fixed: Mapping[int, int] = fixed, axes: tuple[int, ...] = axes) -> Tensor | None:
            return _row(tensor, whole, axes, fixed)

        yield Placement(_all(arguments.before, take), _all(arguments.after, take), lane)


def _all(tensors: Mapping[str, Tensor], take: object) -> dict[str, Tensor]:
    assert callable(take)
    found = {name: take(tensor) for name, tensor in tensors.items()}
    return {name: value for name, value in found.items() if value is not None}


def _choices(dimensions: int) -> list[tuple[int, ...]]:
    """Sets of reduced dimensions: the last, the last two, …, then any other."""
    suffixes = [tuple(range(start, dimensions)) for start in reversed(range(dimensions))]
    every = range(1, dimensions + 1)
    others = [axes for size in every for axes in itertools.combinations(range(dimensions), size)]
    return list(dict.fromkeys((*suffixes, *others)))[:32]


def _as_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The tensor broadcast to a shape, or seen as it where it has as many elements."""
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
    """The coordinates of an element of `shape` in the dimensions that stay, and its lane on those that are reduced."""
    stay = [d for d in range(len(whole)) if d not in axes]
    if math.prod(shape) == math.prod(whole):
        at = unravel(element, whole)
        lane = 0
        for axis in axes:
            lane = lane * whole[axis] + at[axis]
        return {d: at[d] for d in stay}, lane
    if math.prod(shape) == math.prod(whole[d] for d in stay):
        at = unravel(element, tuple(whole[d] for d in stay))
        return dict(zip(stay, at, strict=True)), None
    return None


def _row(tensor: Tensor, whole: tuple[int, ...], axes: tuple[int, ...], fixed: Mapping[int, int]) -> Tensor | None:
    left = tuple(size for d, size in enumerate(whole) if d not in axes)
    if tensor.numel() == 1:
        return tensor.reshape(())
    if tensor.numel() == math.prod(left) and tensor.numel() != math.prod(whole) and left:
        return tensor.reshape(left)[tuple(fixed[d] for d in sorted(fixed))].reshape(())
    full = _as_shape(tensor, whole)
    if full is None:
        return None
    index = tuple(fixed.get(d, slice(None)) for d in range(len(whole)))
    return full[index].reshape(-1)
