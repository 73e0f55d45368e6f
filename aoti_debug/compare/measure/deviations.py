"""Elements of an output of a whole program that rounding does not explain, each judged by itself. Runs in a child.

A mean over all elements hides one that is wrong among many, and small ones beside large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aoti_debug.compare.measure.differences import group_of, largest_in, largest_of
from aoti_debug.compare.measure.output_errors import is_low_precision
from aoti_debug.compare.measure.ulp import finite, real, relative_difference
from aoti_debug.package.program_graphs import Graph, is_cast, is_move, returned_nodes

if TYPE_CHECKING:
    import torch

_PART = 1 << 20  # elements
_LOOK_FROM = 8.0  # relative error, root mean square, in units of the coarsest dtype of the program
_OUTLIER = 64.0  # times the median error of elements of similar size
_LEAST_RELATIVE = 1e-5  # of an outlier
_MULTIPLE = 8.0  # of eager's own error of elements of similar size, absolute and relative
_STORED = 8.0  # units


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
