"""The differences of floating outputs from their evaluations, and elements that rounding does not explain.

In float64 an output takes two to eight times its size, and a dozen such tensors are needed to judge it. So those of a
large one are made of a part of it, used, and dropped. Runs in a child process.

A mean over all elements hides one that is wrong among many, and small ones beside large ones.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from aoti_debug.compare.measure.evaluated import Evaluated
from aoti_debug.compare.measure.output_errors import is_low_precision
from aoti_debug.compare.measure.ulp import are_finite, finite, real, relative_difference, ulp
from aoti_debug.package.program_graphs import Graph, is_cast, is_move, returned_nodes

if TYPE_CHECKING:
    import torch

_PART = 1 << 20  # elements
_SIMILAR_BITS = 2  # of an exponent: elements are of similar size if the others are equal, or differ by one
_LEAST_EXPONENT = -1100  # below that of any float64
_SMALLEST = 2.0**-1074  # stands for zero
GROUPS = (1024 - _LEAST_EXPONENT >> _SIMILAR_BITS) + 3  # the first and the last one are empty
_LOOK_FROM = 8.0  # relative error, root mean square, in units of the coarsest dtype of the program
_OUTLIER = 64.0  # times the median error of elements of similar size
_LEAST_RELATIVE = 1e-5  # of an outlier
_MULTIPLE = 8.0  # of eager's own error of elements of similar size, absolute and relative
_STORED = 8.0  # units


class Differences:
    """A part of an output, flat and in float64.

    Attributes:
        eager, double: the values of evaluations.
        is_equal: True if the output equals eager's, but for signs of zero.
        error: of the output, from float64.
    """

    def __init__(self, output: Evaluated) -> None:
        import torch

        self._output = output
        self.actual, self.eager, self.double = (_flat(t) for t in (output.actual, output.eager, output.double))
        self.is_equal = torch.equal(self.actual, self.eager)
        self.error = (self.actual - self.double).abs_()

    @property
    def is_exact(self) -> bool:
        """True if float64 gives the output as well."""
        return self.is_equal and not bool(self.error.any())

    @cached_property
    def kernel(self) -> torch.Tensor:
        """The values of the kernel's arithmetic, rounded to the dtype of the output."""
        import torch

        return _flat(self._output.kernel).to(self._output.actual.dtype).to(torch.float64) if self._own else self.eager

    @cached_property
    def eager_error(self) -> torch.Tensor:
        """The error of eager."""
        return self.error if self.is_equal else (self.eager - self.double).abs_()

    @cached_property
    def kernel_error(self) -> torch.Tensor:
        """The error of the kernel's arithmetic."""
        return (self.kernel - self.double).abs_() if self._own else self.eager_error

    @cached_property
    def others(self) -> torch.Tensor:
        """The larger one of the two, 0 where it is infinite or NaN."""
        import torch

        eager = finite(self.eager_error)
        return torch.maximum(eager, finite(self.kernel_error)) if self._own else eager

    @cached_property
    def are_numbers(self) -> bool:
        """True if nothing is infinite or NaN."""
        return all(map(are_finite, (self.error, self.eager_error, self.kernel_error)))

    @cached_property
    def step(self) -> torch.Tensor:
        """One ULP at each element."""
        return ulp(self.double, self._output.actual.dtype)

    @cached_property
    def size(self) -> torch.Tensor:
        """The magnitude of each element."""
        return finite(self.double.abs())

    @cached_property
    def groups(self) -> torch.Tensor:
        """The group of each element, from 1, by its exponent; zero has that of the smallest numbers."""
        import torch

        return _group_of(torch.maximum(self.size, self.step))

    @cached_property
    def perturbed(self) -> tuple[torch.Tensor, ...]:
        """The values from perturbed inputs."""
        return tuple(_flat(t) for t in self._output.perturbed)

    @cached_property
    def bound(self) -> torch.Tensor | None:
        """The distance that rounding may move each element before it is stored; None if that is not known."""
        return None if self._output.bound is None else _flat(self._output.bound)

    @cached_property
    def change(self) -> torch.Tensor | None:
        """The distance that the elements move when the inputs are perturbed; None if it is not known."""
        import torch

        return (
            torch.stack([finite((p - self.double).abs_()) for p in self.perturbed]).amax(0) if self.perturbed else None
        )

    @property
    def _own(self) -> bool:
        """True if the kernel's arithmetic is another one than eager's."""
        return self._output.kernel is not self._output.eager or self._output.kernel.dtype != self._output.actual.dtype


def group_of(values: torch.Tensor) -> torch.Tensor:
    """The group of each number, from 1, by its exponent; zero, NaN and infinities have that of the smallest numbers."""
    return _group_of(finite(values.abs()).clamp(min=_SMALLEST))


def _group_of(sizes: torch.Tensor) -> torch.Tensor:
    """That of numbers above 0."""
    import torch

    exponent = torch.frexp(sizes).exponent.long()
    return exponent.sub_(_LEAST_EXPONENT).bitwise_right_shift_(_SIMILAR_BITS).add_(1)


def largest_in(groups: torch.Tensor, values: torch.Tensor, known: torch.Tensor | None) -> torch.Tensor:
    """The largest of the values of each group, and of those that are known."""
    import torch

    own = torch.zeros(GROUPS, dtype=values.dtype, device=values.device) if known is None else known
    return own.scatter_reduce_(0, groups, values, "amax")


def largest_of(groups: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """The largest of a group and of its two neighbours, for each element."""
    import torch

    largest = own.clone()
    largest[1:-1] = torch.maximum(torch.maximum(own[:-2], own[1:-1]), own[2:])
    return largest.index_select(0, groups)


class OutputParts:
    """The parts of an output, in row-major order; that of an output of one part is computed once."""

    def __init__(self, output: Evaluated) -> None:
        self._output = output
        self.is_one = output.actual.numel() <= _PART

    def __iter__(self) -> Iterator[Differences]:
        if self.is_one:
            yield self._only
            return
        for place in _places(tuple(self._output.actual.shape)):
            yield Differences(_each(self._output, operator.itemgetter(place)))

    @cached_property
    def _only(self) -> Differences:
        return Differences(self._output)


def _places(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yields the places of parts of a tensor, which together are all of it, in row-major order."""
    size, *others = shape
    inner = math.prod(others)
    if inner > _PART:
        for index in range(size):
            for place in _places(tuple(others)):
                yield slice(index, index + 1), *place
        return
    step = max(1, _PART // inner)
    for begin in range(0, size, step):
        yield (slice(begin, begin + step),)


def _each(output: Evaluated, function: Callable[[torch.Tensor], torch.Tensor]) -> Evaluated:
    """The output with the result of a function for each of its tensors."""
    eager = function(output.eager)
    return replace(
        output,
        actual=function(output.actual),
        eager=eager,
        kernel=eager if output.kernel is output.eager else function(output.kernel),
        double=function(output.double),
        perturbed=tuple(map(function, output.perturbed)),
        ties=None,
        bound=None if output.bound is None else function(output.bound),
    )


def _flat(values: torch.Tensor) -> torch.Tensor:
    import torch

    return values.to(torch.float64).reshape(-1)


def is_suspicious(actual: torch.Tensor, eager: torch.Tensor, coarsest: str) -> bool:
    """True if float64 should be asked about an output: it may differ from eager's by more than rounding.

    Args:
        coarsest: the coarsest floating dtype that the program computes in.
    """
    import torch

    if torch.equal(real(actual), real(eager)):
        return False
    if is_low_precision(coarsest) or not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        return True
    if relative_difference(actual, eager) > _LOOK_FROM * _unit(actual.dtype):
        return True
    return any(_has_outlier(a, e) for a, e in zip(_parts(actual), _parts(eager), strict=True))


def deviating(actual: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, coarsest: str) -> torch.Tensor:
    """True, in row-major order, for the elements whose error rounding does not explain.

    Args:
        exact: what the program returns in float64.
    """
    import torch

    if not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        flat = [tensor.reshape(-1) for tensor in (actual, eager, exact)]
        return (flat[0] != flat[1]) & (flat[2] == flat[1])
    count = 2 if actual.is_complex() else 1
    dtype = getattr(torch, coarsest) if is_low_precision(coarsest) else actual.dtype
    unit = _unit(dtype)
    largest: torch.Tensor | None = None
    relative: torch.Tensor | None = None
    for e, d in zip(_parts(eager), _parts(exact), strict=True):
        groups, error = group_of(d), finite((e - d).abs())
        largest = largest_in(groups, error, largest)
        relative = largest_in(groups, finite(error / d.abs()), relative)
    found = []
    for a, e, d in zip(_parts(actual), _parts(eager), _parts(exact), strict=True):
        assert largest is not None
        assert relative is not None
        groups, size = group_of(d), finite(d.abs())
        of_eager = torch.minimum(largest_of(groups, largest), largest_of(groups, relative) * size)
        allowed = _MULTIPLE * of_eager + _STORED * unit * size
        found.append(((a - d).abs() > allowed.clamp_(min=torch.finfo(actual.dtype).smallest_normal)) & a.isfinite())
        alike = (a.isnan() & d.isnan()) | (a == d) | (a.isnan() & e.isnan()) | (a == e)
        found[-1] |= ~a.isfinite() & ~alike & d.isfinite() & (d.abs() < torch.finfo(dtype).max / 2)
        found[-1] |= a.isfinite() & ~d.isfinite() & ~e.isfinite()
    flags = torch.cat(found) if found else torch.zeros(0, dtype=torch.bool)
    return flags.view(-1, count).any(1)


def _unit(dtype: torch.dtype) -> float:
    import torch

    unit: float = torch.finfo(dtype).eps
    return unit


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A tensor in float64, flat, a part at a time; of complex numbers the real and imaginary parts."""
    import torch

    for part in real(tensor).reshape(-1).split(_PART):
        yield part.to(torch.float64)


def _has_outlier(actual: torch.Tensor, eager: torch.Tensor) -> bool:
    """True if an element is much farther off than half of those of similar size."""
    import torch

    error = (actual - eager).abs()
    alike = (actual == eager) | (actual.isnan() & eager.isnan())
    if bool((~error.isfinite() & ~alike).any()):
        return True
    error = torch.where(alike, 0.0, error)
    candidates = error > _LEAST_RELATIVE * eager.abs()
    if not bool(candidates.any()):
        return False
    groups = group_of(eager)
    for group in groups[candidates].unique():
        own = error[groups == group]
        if float(own.max()) > _OUTLIER * float(own.median()):
            return True
    return False


def is_one_step(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if integers differ by 1 at most: where a number is rounded to one, the last bit before may decide it."""
    import torch

    is_whole = not (second.dtype.is_floating_point or second.dtype.is_complex or second.dtype is torch.bool)
    return is_whole and not bool(((first.double() - second.double()).abs() > 1).any())


def is_rounded_to_integers(graph: Graph | None, output: int) -> bool:
    """True if an output of a graph is what a cast makes of floating numbers."""
    names = () if graph is None else returned_nodes(graph)
    node = graph.by_name.get(names[output]) if graph is not None and output < len(names) else None
    while graph is not None and node is not None and is_move(node) and node.inputs:
        node = graph.by_name[node.inputs[0]]
    if graph is None or node is None or not is_cast(node) or not node.inputs:
        return False
    return any(kind is not None and "float" in kind.dtype for kind in graph.by_name[node.inputs[0]].types)
