"""An output as it was recorded and as it was evaluated, and its measurement. Runs in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.measure.error_spread import spread_of
from aoti_debug.compare.protocol.limits import LARGEST
from aoti_debug.compare.protocol.measurement import Element, ErrorSpread, Measurement

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
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
    return Measurement(subject.argument, subject.value, subject.operator, **common, **limited)  # type: ignore[arg-type]


def spread(
    output: Evaluated, excess: torch.Tensor, ulp: torch.Tensor | None = None, misplaced: torch.Tensor | None = None
) -> ErrorSpread | None:
    """The distribution of the errors of an output with wrong elements."""
    return spread_of(tuple(output.actual.shape), excess, ulp, misplaced) if bool((excess > 1).any()) else None


def element(index: int, output: Evaluated) -> Element:
    """An element of an output, by its row-major index."""
    values = (output.actual, output.double, output.eager)
    return Element(index, *(repr(t.reshape(-1)[index].item()) for t in values))
