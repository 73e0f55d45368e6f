"""Elements of an output that depend on a choice among equal elements. Runs in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.measure.evaluated import Evaluated
from aoti_debug.compare.measure.ulp import ulp

if TYPE_CHECKING:
    import torch

_ROUNDING = 4.0  # ULP


@dataclass(frozen=True)
class ChoiceRange:
    """The values that each element of an output has with several choices.

    Attributes:
        low, high: the least and the largest; equal, or NaN, where an element depends on no choice.
    """

    low: torch.Tensor
    high: torch.Tensor

    @property
    def depends(self) -> torch.Tensor:
        """True where an element depends on a choice."""
        return (self.low != self.high) & ~(self.low.isnan() & self.high.isnan())

    def applied(self, output: Evaluated) -> Evaluated:
        """The output, judged by this range alone where an element depends on a choice.

        There, what lies in the range counts as exactly right, and what other evaluations chose counts for no element.
        """
        import torch

        depends = self.depends
        low, high, actual = self.low.double(), self.high.double(), output.actual.double()
        dtype = output.actual.dtype
        slack = _ROUNDING * ulp(high.abs().maximum(low.abs()), dtype) if dtype.is_floating_point else 0.0
        within = depends & (actual >= low - slack) & (actual <= high + slack)
        right = output.double

        def settled(tensor: torch.Tensor) -> torch.Tensor:
            return torch.where(depends, right.to(tensor.dtype), tensor)

        return replace(
            output,
            actual=torch.where(within, right.to(output.actual.dtype), output.actual),
            eager=settled(output.eager),
            kernel=settled(output.kernel),
            perturbed=tuple(map(settled, output.perturbed)),
        )


def choice_range(values: Sequence[torch.Tensor]) -> ChoiceRange | None:
    """The range of evaluations with several choices; None if no element depends on one, or it has no order."""
    import torch

    if values[0].is_complex():
        return None
    wide = [value.to(torch.uint8) if value.dtype is torch.bool else value for value in values]
    stacked = torch.stack(wide)
    found = ChoiceRange(stacked.amin(0), stacked.amax(0))
    return found if bool(found.depends.any()) else None
