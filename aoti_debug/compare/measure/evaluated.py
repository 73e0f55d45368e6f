"""An output as it was recorded and as it was evaluated, its measurement, and how its errors lie. In a child process."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.protocol.measurement import (
    LARGEST,
    LARGEST_BIN,
    MAX_COLUMNS,
    MAX_RANGES,
    MAX_ROWS,
    SMALLEST_BIN,
    Element,
    ErrorSpread,
    Measurement,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """An output as it was recorded, and as it was evaluated.

    Attributes:
        actual: as recorded.
        eager, kernel, double: in each arithmetic; of the dtype that stands for its own there.
        perturbed: in float64, from perturbed inputs.
        ties: True where an index selects an element that is equal to the expected one; None if it is no index.
        terms: the number of terms in the longest sum.
        largest_sum: a bound of what the terms of a sum can add up to, in any order; 0 if it is not known.
        bound: how far rounding may move each element before it is stored, in float64; None if that is not known.
    """

    actual: torch.Tensor
    eager: torch.Tensor
    kernel: torch.Tensor
    double: torch.Tensor
    perturbed: tuple[torch.Tensor, ...] = ()
    ties: torch.Tensor | None = None
    terms: int = 1
    largest_sum: float = 0.0
    bound: torch.Tensor | None = None


@dataclass(frozen=True)
class Subject:
    """The names of an output: see Measurement."""

    argument: str
    value: str
    operator: str


def measurement(subject: Subject, output: Evaluated, **members: object) -> Measurement:
    """A measurement of an output, with these members; floats are limited to LARGEST."""
    actual = output.actual
    common = {"dtype": dtypes.bare_name(actual.dtype), "shape": tuple(actual.shape), "count": actual.numel()}
    limited = {name: min(value, LARGEST) if isinstance(value, float) else value for name, value in members.items()}
    return Measurement(argument=subject.argument, value=subject.value, operator=subject.operator, **common, **limited)  # type: ignore[arg-type]


def spread(
    output: Evaluated, excess: torch.Tensor, ulp: torch.Tensor | None = None, misplaced: torch.Tensor | None = None
) -> ErrorSpread | None:
    """The distribution of the errors of an output with wrong elements."""
    return spread_of(tuple(output.actual.shape), excess, ulp, misplaced) if bool((excess > 1).any()) else None


def element(index: int, output: Evaluated) -> Element:
    """An element of an output, by its row-major index."""
    values = (output.actual, output.double, output.eager)
    return Element(index, *(repr(t.reshape(-1)[index].item()) for t in values))


def spread_of(
    shape: tuple[int, ...],
    excess: torch.Tensor,
    ulp: torch.Tensor | None = None,
    misplaced: torch.Tensor | None = None,
    *,
    bound: float = 1.0,
) -> ErrorSpread:
    """The distribution of errors.

    Args:
        shape: of the output.
        excess: the error of each element as a multiple of what is allowed there. Flat.
        ulp: the error of each element in ULP; None for integers and booleans. Flat.
        misplaced: True for NaN and infinities where none should be, and numbers where one should be. Flat.
        bound: an element with a larger error is wrong.
    """
    import torch

    if misplaced is None:
        misplaced = torch.zeros_like(excess, dtype=torch.bool)
    height, width = (1, *shape)[-2:] if shape else (1, 1)
    rows, columns = min(height, MAX_ROWS), min(width, MAX_COLUMNS)
    plane = excess.double().clamp(max=LARGEST).reshape(-1, height, width).amax(0)
    cell = _cells(height, rows, plane)[:, None] * columns + _cells(width, columns, plane)
    largest = torch.zeros(rows * columns, dtype=plane.dtype, device=plane.device)
    largest.scatter_reduce_(0, cell.reshape(-1), plane.reshape(-1), "amax")
    return ErrorSpread(
        ulp=() if ulp is None else _histogram(ulp[~misplaced]),
        misplaced=int(misplaced.sum()),
        rows=rows,
        columns=columns,
        map=tuple(float(f"{value:.3g}") for value in largest.tolist()),
        ranges=_ranges(shape, excess > bound),
    )


def _cells(size: int, cells: int, like: torch.Tensor) -> torch.Tensor:
    """The cell of each index of a dimension."""
    import torch

    return torch.arange(size, device=like.device) * cells // size


def _histogram(ulp: torch.Tensor) -> tuple[int, ...]:
    import torch

    bins = torch.clamp(torch.ceil(torch.log2(ulp)), SMALLEST_BIN, LARGEST_BIN) - SMALLEST_BIN + 1
    counts = torch.bincount(torch.where(ulp == 0, torch.zeros_like(bins), bins).long()).tolist()
    return tuple(int(count) for count in counts)


def _ranges(shape: tuple[int, ...], wrong: torch.Tensor) -> tuple[tuple[tuple[int, int], ...], ...]:
    marked = wrong.reshape(shape)
    found = []
    for dimension in range(len(shape)):
        others = math.prod(shape[:dimension]), shape[dimension], math.prod(shape[dimension + 1 :])
        indices = marked.reshape(others).any(2).any(0).nonzero().reshape(-1).tolist()
        runs = [[index for _, index in run] for _, run in itertools.groupby(enumerate(indices), lambda x: x[1] - x[0])]
        limits = tuple((run[0], run[-1]) for run in runs)
        found.append(limits if len(limits) <= MAX_RANGES else ((limits[0][0], limits[-1][1]),))
    return tuple(found)
