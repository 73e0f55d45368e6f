"""Measures how far an output is from its reference, and what rounding may explain. Runs in a child process.

The allowed error of an element of a floating output is the largest of 1 ULP, eager's own error there, and half a ULP
plus how far rounding may move it before it is stored, where that is known (aoti_debug.compare.worker.error_bounds).

Elsewhere, with sums for instance, it is for an element with the reference r (computed in float64)

    2 ULP                                        its own rounding when it is stored
    + 8 · g · (u · |r| + change)                 rounding within the kernel
    + 4 · eager                                  what eager and the kernel's arithmetic get wrong themselves

where u is the unit of the kernel's arithmetic (2⁻²³; float64: 2⁻⁵²), `change` how much r moves when every input, and
the result of every reduction, is perturbed by one such unit at random, and every function by its bound, and
g = 1 + √n / 4 grows with the number n of terms in the longest sum.
`change` and `eager` are the largest of all elements of similar size (|r| within a factor of about 2⁸): an element that
happens to come out exactly right says nothing about its neighbours. The perturbation is only computed where the rest
does not suffice.

Outputs in 16 or 8 bits also must not lean to one side: see `bias` below.

NaN and infinities have to be where eager, the kernel's arithmetic or float64 has them; an infinity may also stand where
r is out of the dtype's range, and where a sum overflows if its terms are added in another order. Signs of zero and of
NaN do not count.

Integers and booleans have to equal eager's, except where the decision is not stable: the arithmetics or the perturbed
inputs disagree, or two indices select equal elements.

What is computed from the index of one of several equal elements may be anything between what the choices among them
give: see aoti_debug.compare.measure.choices.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arithmetic import unit
from aoti_debug.compare.measure.differences import Differences, OutputParts, largest_in, largest_of
from aoti_debug.compare.measure.evaluated import Evaluated, Subject, element, measurement, spread
from aoti_debug.compare.measure.ulp import are_finite, finite, median, misplaced, relative_difference
from aoti_debug.compare.protocol.measurement import LARGEST, SMALLEST, ErrorSpread, Measurement

if TYPE_CHECKING:
    import torch

LEAST_ELEMENTS = 64
_LEAST_MAGNITUDES = 16
_FEW_BITS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_LEAST_BIAS = 0.2  # ULP
_LARGEST_ERROR = 4.0  # ULP: one element that is far off says nothing about the others


def bias(parts: OutputParts, dtype: torch.dtype) -> float:
    """The mean error in ULP, away from zero, from the arithmetic that is nearest; 0 where it is no bias.

    Args:
        dtype: of the output.
    """
    import torch

    if dtypes.bare_name(dtype) not in _FEW_BITS:
        return 0.0
    count = sum(int(_usable(part, dtype).sum()) for part in parts)
    if count < LEAST_ELEMENTS:
        return 0.0

    def mean(first: Callable[[Differences], torch.Tensor], second: Callable[[Differences], torch.Tensor]) -> float:
        total = 0.0
        for part in parts:
            error = ((first(part) - second(part)) / part.step * part.double.sign()).clamp(
                -_LARGEST_ERROR, _LARGEST_ERROR
            )
            total += float(torch.where(_usable(part, dtype), error, torch.zeros_like(error)).sum())
        return total / count

    means = []
    for evaluated in (_eager, _kernel, _double):
        means.append(mean(_actual, lambda part, of=evaluated: of(part).to(dtype).to(torch.float64)))  # type: ignore[misc]
        if abs(means[-1]) <= _LEAST_BIAS:
            return 0.0
    magnitudes = [part.double[_usable(part, dtype)].abs().unique() for part in parts]
    if torch.cat(magnitudes).unique().numel() < _LEAST_MAGNITUDES:  # one rounding may decide about all elements
        return 0.0
    nearest = min(means, key=abs)
    count_perturbed = len(next(iter(parts)).perturbed)
    moved = max((abs(mean(lambda part, i=i: part.perturbed[i], _double)) for i in range(count_perturbed)), default=0.0)  # type: ignore[misc]
    allowed = _LEAST_BIAS + min(8 / count**0.5, 0.25) + 2 * (max(means) - min(means)) + 4 * moved
    return nearest if abs(nearest) > allowed else 0.0


_actual, _eager, _kernel, _double = map(operator.attrgetter, ("actual", "eager", "kernel", "double"))


def _usable(part: Differences, dtype: torch.dtype) -> torch.Tensor:
    """True for the elements that are numbers, and not subnormal."""
    import torch

    usable = part.double.abs() >= torch.finfo(dtype).smallest_normal
    for values in (part.actual, part.eager, part.kernel, part.double):
        if not are_finite(values):
            usable &= values.isfinite()
    return usable


_STORE, _ARITHMETIC, _EAGER = 2.0, 8.0, 4.0


def measure_floating(subject: Subject, output: Evaluated) -> Measurement:
    """Measures an output of a real floating dtype, of at least one element."""
    import torch

    parts = OutputParts(output)
    if not output.perturbed and all(part.is_exact for part in parts):
        return measurement(subject, output, equals_eager=True)
    dtype, count = output.actual.dtype, output.actual.numel()
    sums = _Sums(parts)
    judged = _Judged(parts, lambda part: _judge(part, sums, output), count)
    leaning = 0.0 if judged.wrong else bias(parts, dtype)
    if leaning:
        judged = _Judged(parts, lambda part: _leaning(part, sums, output), count)
    root, double_root, eager_root = (_root(square, count) for square in (sums.error, sums.size, sums.eager_error))
    if not parts.is_one or (output.actual.is_contiguous() and output.double.is_contiguous()):
        relative = min(root / max(double_root, SMALLEST), LARGEST) if root else 0.0
    else:  # in another order, sums are rounded otherwise
        relative = relative_difference(output.actual, output.double)
    moved = _root(sums.change, count) / max(unit(dtype) * double_root, SMALLEST) if output.perturbed else -1.0
    return measurement(
        subject,
        output,
        wrong=judged.wrong,
        excess=min(judged.excess, LARGEST),
        worst=element(judged.worst, output) if judged.excess > 0 else None,
        bias=leaning,
        equals_eager=sums.is_equal,
        ulp_median=judged.ulp_median,
        ulp_max=judged.ulp_max,
        atol=sums.atol,
        rtol=sums.rtol,
        rms=root,
        relative=relative,
        relative_ulp=relative / torch.finfo(dtype).eps,
        eager_rms=eager_root,
        eager_ulp_max=sums.eager_ulp,
        sensitivity=moved,
        spread=judged.spread(output) if judged.wrong else None,
        misplaced=sums.misplaced,
        lost=sums.lost,
        eager_lost=sums.eager_lost,
    )


class _Sums:
    """Sums and maxima of the differences of an output.

    Attributes:
        is_equal: True if the output equals eager's, but for signs of zero and of NaN.
        error, eager_error, size, change: sums of squares.
        atol, rtol: the largest error, and the largest relative one.
        eager_ulp: the largest error of eager, in ULP.
        misplaced, lost, eager_lost: see Measurement.
    """

    def __init__(self, parts: OutputParts) -> None:
        self.is_equal = True
        self.error = self.eager_error = self.size = self.change = 0.0
        self.atol = self.rtol = self.eager_ulp = 0.0
        self.misplaced = self.lost = self.eager_lost = 0
        self._others: torch.Tensor | None = None
        self._change: torch.Tensor | None = None
        for part in parts:
            self._add(part)

    def _add(self, part: Differences) -> None:
        error, eager_error = finite(part.error), finite(part.eager_error)
        same = part.is_equal
        if not part.are_numbers:
            same = bool(((part.actual == part.eager) | (part.actual.isnan() & part.eager.isnan())).all())
            self.misplaced += misplaced(part.actual, part.eager)
            self.lost += misplaced(part.actual, part.double)
            self.eager_lost += misplaced(part.eager, part.double)
        self.is_equal &= same
        self.error += float(error.square().sum())
        self.eager_error += float(eager_error.square().sum())
        self.size += float(part.size.square().sum())
        self.atol = max(self.atol, float(error.max()))
        self.rtol = max(self.rtol, _largest_relative(part.error, part.actual, part.double))
        self.eager_ulp = max(self.eager_ulp, float((eager_error / part.step).max()))
        self._others = largest_in(part.groups, part.others, self._others)
        if part.change is not None:
            self.change += float(part.change.square().sum())
            self._change = largest_in(part.groups, part.change, self._change)

    def allowed(self, part: Differences, output: Evaluated) -> torch.Tensor:
        """The error that each element of a part may have."""
        import torch

        if part.bound is not None:
            return torch.maximum(part.bound + part.step / 2, torch.maximum(part.step, part.others))
        assert self._others is not None
        growth = 1 + output.terms**0.5 / 4
        allowed = part.size * unit(output.actual.dtype)
        if self._change is not None:
            allowed += largest_of(part.groups, self._change)
        allowed *= _ARITHMETIC * growth
        return allowed.add_(part.step, alpha=_STORE).add_(largest_of(part.groups, self._others), alpha=_EAGER)


@dataclass(frozen=True)
class _Judgement:
    """A part of an output.

    Attributes:
        ratio: the error of each element as a multiple of what is allowed.
        misplaced: True for NaN and infinities where none should be, and numbers where one should be; None without any.
    """

    ratio: torch.Tensor
    in_ulp: torch.Tensor
    misplaced: torch.Tensor | None


class _Judged:
    """The wrong elements of an output.

    Attributes:
        wrong: the number of elements that are.
        worst: the element whose error is the largest multiple, `excess`, of what is allowed.
        ulp_median, ulp_max: the median and the largest error in ULP.
    """

    def __init__(self, parts: OutputParts, judge: Callable[[Differences], _Judgement], count: int) -> None:
        self._parts, self._judge = parts, judge
        self.wrong = self.worst = begin = 0
        self.excess = 0.0
        in_ulp: torch.Tensor | None = None
        for judgement in map(judge, parts):
            largest = int(judgement.ratio.argmax())
            if float(judgement.ratio[largest]) > self.excess:
                self.worst, self.excess = begin + largest, float(judgement.ratio[largest])
            self.wrong += _count_beyond(judgement.ratio)
            in_ulp = judgement.in_ulp.new_empty(count) if in_ulp is None else in_ulp
            end = begin + judgement.ratio.numel()
            in_ulp[begin:end] = judgement.in_ulp
            begin = end
        assert in_ulp is not None
        self.ulp_max, self.ulp_median = float(in_ulp.max()), median(in_ulp)

    def spread(self, output: Evaluated) -> ErrorSpread | None:
        """The distribution of the errors."""
        import torch

        judgements = list(map(self._judge, self._parts))
        none = (torch.zeros_like(j.ratio, dtype=torch.bool) if j.misplaced is None else j.misplaced for j in judgements)
        ratio, in_ulp = (torch.cat([getattr(j, name) for j in judgements]) for name in ("ratio", "in_ulp"))
        return spread(output, ratio, in_ulp, torch.cat(list(none)))


def _judge(part: Differences, sums: _Sums, output: Evaluated) -> _Judgement:
    """Judges the elements of a part by what rounding explains."""
    import torch

    allowed = sums.allowed(part, output)
    ratio, in_ulp = part.error / allowed, part.error / part.step
    if part.are_numbers:
        return _Judgement(ratio, in_ulp, None)
    both = part.actual.isfinite() & part.double.isfinite()
    evaluated = (part.eager, part.kernel, part.double)
    misplaced = ~both & ~_nonfinite_as_expected(part.actual, evaluated, allowed, output.actual.dtype)
    misplaced &= ~_overflows_in_another_order(part.actual, part.double, output)
    ratio = ratio.masked_fill_(~both, 0.0).masked_fill_(misplaced, torch.inf)
    return _Judgement(ratio, in_ulp.masked_fill_(~both, 0.0), misplaced)


def _leaning(part: Differences, sums: _Sums, output: Evaluated) -> _Judgement:
    """Judges the elements of a part of an output that leans to one side: all that differ are wrong."""
    judgement = _judge(part, sums, output)
    differs = part.actual.isfinite() & part.double.isfinite() & (part.actual != part.kernel)
    return replace(judgement, ratio=(1 + part.error / part.step).masked_fill_(~differs, 0.0))


def _root(squares: float, count: int) -> float:
    """The root of the mean of squares, from their sum."""
    import torch

    return min(float(torch.tensor(squares / count, dtype=torch.float64).sqrt()), LARGEST)


def _count_beyond(ratio: torch.Tensor) -> int:
    """The number of elements above 1."""
    return 0 if float(ratio.max()) <= 1 else int((ratio > 1).sum())


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


def _overflows_in_another_order(actual: torch.Tensor, double: torch.Tensor, output: Evaluated) -> torch.Tensor:
    """True where a sum of terms of both signs may have been out of range on the way to a large, finite number."""
    import torch

    wide = torch.float64 if output.actual.dtype == torch.float64 else torch.float32
    largest = torch.finfo(wide).max
    near = double.abs() >= largest / (4 * output.terms)
    return ~actual.isfinite() & near & (output.largest_sum > largest)


def _largest_relative(error: torch.Tensor, actual: torch.Tensor, double: torch.Tensor) -> float:
    """The largest relative error of the elements that are numbers, and not zero in float64."""
    import torch

    relative = error / double.abs()
    largest = float(relative.max())
    if not math.isfinite(largest):
        counted = actual.isfinite() & double.isfinite() & (double != 0)
        largest = float(torch.where(counted, relative, torch.zeros_like(error)).nan_to_num(0, LARGEST).max())
    return largest


def measure_discrete(subject: Subject, output: Evaluated) -> Measurement:
    """Measures an output of integers or booleans, of at least one element."""
    import torch

    actual, eager = output.actual.reshape(-1), output.eager.reshape(-1)
    different = actual != eager
    decided = int((~different & (output.double.reshape(-1) != eager)).sum())
    if not output.perturbed and not bool(different.any()):
        return measurement(subject, output, equals_eager=True, decided=decided)
    unstable, reached = torch.zeros_like(different), torch.zeros_like(different)
    for other in (output.kernel, output.double, *output.perturbed):
        unstable |= other.reshape(-1) != eager
        reached |= other.reshape(-1) == actual
    # Which index is right may depend on rounding: then it is one that rounding leads to, or that of an equal element.
    allowed = unstable if output.ties is None else reached | output.ties.reshape(-1)
    wrong = different & ~allowed
    error = (actual.to(torch.float64) - eager.to(torch.float64)).abs()
    marked = wrong if bool(wrong.any()) else different
    worst = int(marked.to(torch.uint8).argmax())
    return measurement(
        subject,
        output,
        wrong=int(wrong.sum()),
        excess=LARGEST if bool(wrong.any()) else 0.0,
        worst=element(worst, output) if bool(different.any()) else None,
        equals_eager=not bool(different.any()),
        decided=decided,
        atol=float(error.max()),
        sensitivity=float(unstable.sum()) if output.perturbed else -1.0,
        spread=spread(output, torch.where(wrong, torch.full_like(error, LARGEST), torch.zeros_like(error))),
    )


def measure(subject: Subject, output: Evaluated) -> Measurement:
    """Measures an output; its shape and dtype are those of the recorded tensor."""
    if output.actual.numel() == 0:
        return measurement(subject, output, equals_eager=True)
    if output.actual.dtype.is_complex:
        return measure(subject, _as_real(output))
    is_floating = output.actual.dtype.is_floating_point
    return measure_floating(subject, output) if is_floating else measure_discrete(subject, output)


def _as_real(output: Evaluated) -> Evaluated:
    import torch

    def real(tensor: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(tensor.resolve_conj().contiguous())

    return Evaluated(
        actual=real(output.actual),
        eager=real(output.eager),
        kernel=real(output.kernel),
        double=real(output.double),
        perturbed=tuple(map(real, output.perturbed)),
        terms=output.terms,
        largest_sum=output.largest_sum,
    )
