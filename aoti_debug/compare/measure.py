"""Measures how far an output is from its reference, and what rounding may explain. Runs in a child process.

For a floating output, the allowed error of an element with the reference r (computed in float64) is

    2 ULP                                        its own rounding when it is stored
    + 8 · g · (u · |r| + change)                 rounding within the kernel
    + 4 · eager                                  what eager and the kernel's arithmetic get wrong themselves

where u is the unit of the kernel's arithmetic (2⁻²³; float64: 2⁻⁵²), `change` how much r moves when every input is
perturbed by one such unit at random, and g = 1 + √n / 4 grows with the number n of terms in the longest sum.
`change` and `eager` are the largest of all elements of similar size (|r| within a factor of about 2⁸): an element that
happens to come out exactly right says nothing about its neighbours. The perturbation is only computed where the rest
does not suffice.

Outputs in half precision also must not lean to one side: see aoti_debug.compare.bias.

NaN and infinities have to be where eager, the kernel's arithmetic or float64 has them; an infinity may also stand where
r is out of the dtype's range. Signs of zero and of NaN do not count.

Integers and booleans have to equal eager's, except where the decision is not stable: the arithmetics or the perturbed
inputs disagree, or two indices select equal elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoti_debug import dtypes
from aoti_debug.compare.bias import bias
from aoti_debug.compare.error_spread import ErrorSpread, spread_of
from aoti_debug.compare.measurement import LARGEST as _LARGEST
from aoti_debug.compare.measurement import Element, Measurement

if TYPE_CHECKING:
    import torch

_STORE, _ARITHMETIC, _EAGER = 2.0, 8.0, 4.0
_SIMILAR_BITS = 4  # elements whose exponents differ by less than twice this are of similar size


@dataclass(frozen=True)
class Evaluated:
    """An output as it was recorded, and as it was evaluated.

    Attributes:
        actual: as recorded.
        eager, kernel, double: in each arithmetic; of the dtype that stands for its own there.
        perturbed: in float64, from perturbed inputs.
        ties: True where an index selects an element that is equal to the expected one; None if it is no index.
        terms: the number of terms in the longest sum.
    """

    actual: torch.Tensor
    eager: torch.Tensor
    kernel: torch.Tensor
    double: torch.Tensor
    perturbed: tuple[torch.Tensor, ...] = ()
    ties: torch.Tensor | None = None
    terms: int = 1


@dataclass(frozen=True)
class Subject:
    """The names of an output: see Measurement."""

    argument: str
    value: str
    operator: str


def measure(subject: Subject, output: Evaluated) -> Measurement:
    """Measures an output; its shape and dtype are those of the recorded tensor."""
    if output.actual.numel() == 0:
        return _measurement(subject, output, equals_eager=True)
    if output.actual.dtype.is_complex:
        return measure(subject, _as_real(output))
    return _floating(subject, output) if output.actual.dtype.is_floating_point else _discrete(subject, output)


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of a dtype at float64 values; infinities and NaN have that of 1."""
    import torch

    info = torch.finfo(dtype)
    magnitude = torch.where(values.isfinite(), values.abs(), torch.ones_like(values))
    exponent = torch.frexp(magnitude).exponent.to(torch.float64) - 1
    step = torch.where(magnitude == 0, torch.zeros_like(exponent), torch.exp2(exponent) * info.eps)
    return torch.clamp(step, min=info.smallest_normal * info.eps)


def unit(dtype: torch.dtype) -> float:
    """The relative distance of neighbouring numbers in the arithmetic that kernels use for a dtype."""
    import torch

    return 2.0**-52 if dtype == torch.float64 else 2.0**-23


def relative_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Root of the mean squared difference, divided by the root of the mean square of the expected values."""
    import torch

    if actual.is_complex():
        actual, expected = torch.view_as_real(actual.resolve_conj()), torch.view_as_real(expected.resolve_conj())
    wide = expected.to(torch.float64)
    difference = _rms(_finite(actual.to(torch.float64) - wide)) if actual.numel() else 0.0
    return min(difference / max(_rms(_finite(wide)), 1e-300), _LARGEST) if difference else 0.0


def _floating(subject: Subject, output: Evaluated) -> Measurement:
    import torch

    dtype = output.actual.dtype
    wide = torch.float64
    actual, eager, kernel, double = (
        t.to(wide).reshape(-1) for t in (output.actual, output.eager, output.kernel, output.double)
    )
    kernel = kernel.to(dtype).to(wide)
    step = ulp(double, dtype)
    error, eager_error, kernel_error = ((t - double).abs() for t in (actual, eager, kernel))
    finite = actual.isfinite() & double.isfinite()
    groups = _similar(double, step)
    others = torch.maximum(_finite(eager_error), _finite(kernel_error))
    changes = [_finite((p.to(wide).reshape(-1) - double).abs()) for p in output.perturbed]
    change = torch.stack(changes).amax(0) if changes else torch.zeros_like(double)
    growth = 1 + output.terms**0.5 / 4
    arithmetic = unit(dtype) * _finite(double.abs()) + _largest_of(groups, change)
    allowed = _STORE * step + _ARITHMETIC * growth * arithmetic + _EAGER * _largest_of(groups, others)
    ratio = torch.where(finite, error / allowed, torch.zeros_like(error))
    misplaced = ~finite & ~_nonfinite_as_expected(actual, (eager, kernel, double), allowed, dtype)
    ratio = torch.where(misplaced, torch.full_like(ratio, torch.inf), ratio)
    leaning = 0.0
    if not bool((ratio > 1).any()):
        perturbed = [p.to(wide).reshape(-1) for p in output.perturbed]
        leaning = bias(actual, (eager, kernel, double), perturbed, step, dtype)
    if leaning:
        ratio = torch.where(finite & (actual != kernel), 1 + error / step, torch.zeros_like(error))
    worst = int(ratio.argmax())
    relative = relative_difference(output.actual, output.double)
    in_ulp = torch.where(finite, error / step, torch.zeros_like(error))
    return _measurement(
        subject,
        output,
        wrong=int((ratio > 1).sum()),
        excess=min(float(ratio[worst]), _LARGEST),
        worst=_element(worst, output) if float(ratio[worst]) > 0 else None,
        bias=leaning,
        equals_eager=bool(((actual == eager) | (actual.isnan() & eager.isnan())).all()),
        ulp_median=float(in_ulp.median()),
        ulp_max=float(in_ulp.max()),
        atol=float(_finite(error).max()),
        rtol=_largest_relative(error, double, finite),
        rms=_rms(_finite(error)),
        relative=relative,
        relative_ulp=relative / torch.finfo(dtype).eps,
        eager_rms=_rms(_finite(eager_error)),
        eager_ulp_max=float((_finite(eager_error) / step).max()),
        sensitivity=_rms(change) / max(unit(dtype) * _rms(_finite(double)), 1e-300) if changes else -1.0,
        spread=_spread(output, ratio, in_ulp, misplaced),
    )


def _discrete(subject: Subject, output: Evaluated) -> Measurement:
    import torch

    actual, eager = output.actual.reshape(-1), output.eager.reshape(-1)
    different = actual != eager
    unstable = torch.zeros_like(different)
    for other in (output.kernel, output.double, *output.perturbed):
        unstable |= other.reshape(-1) != eager
    if output.ties is not None:
        unstable |= output.ties.reshape(-1)
    wrong = different & ~unstable
    error = (actual.to(torch.float64) - eager.to(torch.float64)).abs()
    marked = wrong if bool(wrong.any()) else different
    worst = int(marked.to(torch.uint8).argmax())
    return _measurement(
        subject,
        output,
        wrong=int(wrong.sum()),
        excess=_LARGEST if bool(wrong.any()) else 0.0,
        worst=_element(worst, output) if bool(different.any()) else None,
        equals_eager=not bool(different.any()),
        atol=float(error.max()),
        sensitivity=float(unstable.sum()) if output.perturbed else -1.0,
        spread=_spread(output, torch.where(wrong, torch.full_like(error, _LARGEST), torch.zeros_like(error))),
    )


def _measurement(subject: Subject, output: Evaluated, **members: object) -> Measurement:
    actual = output.actual
    common = {"dtype": dtypes.bare_name(actual.dtype), "shape": tuple(actual.shape), "count": actual.numel()}
    limited = {name: min(value, _LARGEST) if isinstance(value, float) else value for name, value in members.items()}
    return Measurement(subject.argument, subject.value, subject.operator, **common, **limited)  # type: ignore[arg-type]


def _spread(
    output: Evaluated, excess: torch.Tensor, ulp: torch.Tensor | None = None, misplaced: torch.Tensor | None = None
) -> ErrorSpread | None:
    """The distribution of the errors of an output with wrong elements."""
    return spread_of(tuple(output.actual.shape), excess, ulp, misplaced) if bool((excess > 1).any()) else None


def _element(index: int, output: Evaluated) -> Element:
    values = (output.actual, output.double, output.eager)
    return Element(index, *(repr(t.reshape(-1)[index].item()) for t in values))


def _similar(values: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The group of each value, by its exponent; zero has that of the smallest numbers."""
    import torch

    magnitude = torch.maximum(_finite(values.abs()), step)
    return (torch.frexp(magnitude).exponent + 1100) // _SIMILAR_BITS


def _largest_of(groups: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The largest of the values of the same group and of its two neighbours, for each element."""
    import torch

    largest = torch.zeros(int(groups.max()) + 3, dtype=values.dtype, device=values.device)
    for shift in (0, 1, 2):
        largest.scatter_reduce_(0, groups.long() + shift, values, "amax")
    return largest[groups.long() + 1]


def _nonfinite_as_expected(
    actual: torch.Tensor, evaluated: Sequence[torch.Tensor], allowed: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """True where an infinity or NaN, or a number in its place, is one that some arithmetic has as well."""
    import torch

    expected = torch.zeros_like(actual, dtype=torch.bool)
    for other in evaluated:
        expected |= (actual.isnan() & other.isnan()) | (actual == other) | (actual.isfinite() & other.isfinite())
    double = evaluated[-1]
    beyond = double.abs() + allowed >= torch.finfo(dtype).max
    return expected | (actual.isinf() & beyond & (actual.sign() == double.sign()))


def _finite(values: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.where(values.isfinite(), values, torch.zeros_like(values))


def _largest_relative(error: torch.Tensor, double: torch.Tensor, finite: torch.Tensor) -> float:
    import torch

    counted = finite & (double != 0)
    return float(torch.where(counted, error / double.abs(), torch.zeros_like(error)).nan_to_num(0, _LARGEST).max())


def _rms(values: torch.Tensor) -> float:
    return min(float(values.square().mean().sqrt()), _LARGEST)


def _as_real(output: Evaluated) -> Evaluated:
    import torch

    def real(tensor: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(tensor.resolve_conj().contiguous())

    return Evaluated(
        real(output.actual),
        real(output.eager),
        real(output.kernel),
        real(output.double),
        tuple(map(real, output.perturbed)),
        terms=output.terms,
    )
