"""Compares the change of a model's state in a call with the program's. Runs in a child process.

A state that has not changed, or has changed twice, is as far from the program's as the change is large. A difference
that is small beside the change may be rounding: it is wrong only if the program in float64 shows that it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.compare.measure.ulp import real
from aoti_debug.compare.protocol.measurement import Advance, StateChange

if TYPE_CHECKING:
    import torch

_WRONG_FROM = 0.5  # of the change
_OPEN_FROM = 1e-3  # of the change: a smaller difference of floating numbers is rounding
_MULTIPLE = 8.0  # of eager's own error: other orders of summing may round as much worse
NOISE_UNITS, NOISE_SEEDS = 1.0, range(8)  # of the evaluations that round otherwise
_NOISE_MULTIPLE = 4.0  # of how far a state moves in them
_ROUNDING = 16.0  # a change that is smaller than this many ULP of the state's largest element says nothing


def state_change(
    name: str, call: int, launch: str, before: torch.Tensor, after: torch.Tensor, expected: torch.Tensor
) -> StateChange:
    """Compares a state with what it should be after a call."""
    old, new, right = (real(tensor).double().reshape(-1) for tensor in (before, after, expected))
    misplaced = int((~_alike(new, right)).sum())
    change = _size(right - old)
    difference = _size(new - right)
    floor = _ROUNDING * _resolution(after, right)
    is_open = difference > (max(floor, _OPEN_FROM * change) if floor else 0.0)
    if not misplaced and not is_open and (change <= floor or difference <= _WRONG_FROM * change):
        advance = Advance.RIGHT
    elif bool(((new == old) | (new.isnan() & old.isnan())).all()):
        advance = Advance.NOT_AT_ALL
    elif not misplaced and _size(new - (2 * right - old)) <= 1e-3 * change:
        advance = Advance.TWICE
    else:
        advance = Advance.OTHERWISE
    return StateChange(
        name=name, call=call, launch=launch, advance=advance, change=change, difference=difference, misplaced=misplaced
    )


def is_small(change: StateChange) -> bool:
    """True if a state differs by little beside its change in the call: it has changed, and rounding may do the rest."""
    return not change.misplaced and (change.difference or 0.0) <= _WRONG_FROM * (change.change or 0.0)


def judged_by_nothing(change: StateChange, after: torch.Tensor) -> StateChange | None:
    """The change, where float64 does not know it: as the program says if small; None if rounding may explain it."""
    if is_small(change):
        return replace(change, advance=Advance.RIGHT)
    return None if after.dtype.is_floating_point or after.dtype.is_complex else change


def begin_difference(name: str, actual: torch.Tensor | None, right: torch.Tensor) -> StateChange:
    """A weight that a run began with another value of than the program.

    Args:
        actual: None if it is only known that elements differ.
    """
    if actual is None:
        return StateChange(name=name, call=0, launch="", advance=Advance.OTHER_BEGIN)
    new, old = (real(tensor).double().reshape(-1) for tensor in (actual, right))
    return StateChange(
        name=name,
        call=0,
        launch="",
        advance=Advance.OTHER_BEGIN,
        change=None,
        difference=_size(new - old),
        misplaced=int((~_alike(new, old)).sum()),
    )


def lost_change(name: str, before: torch.Tensor, expected: torch.Tensor) -> StateChange | None:
    """The first change of a state that a run never writes; None if the program does not change it either."""
    change = state_change(name, 0, "", before, before, expected)
    return None if change.advance is Advance.RIGHT else replace(change, advance=Advance.UNTOUCHED)


def judged_by_double(change: StateChange, after: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> StateChange:
    """The change, as the program says if rounding explains it: eager is about as far from float64.

    NaN and infinities are explained where float64 has them too, or a number beyond what the state's dtype holds.

    Args:
        after: the state after the call of the run.
        eager: after that of the program in its own dtypes.
        exact: after that of the program in float64.
    """
    new, old, right = (real(value).double().reshape(-1) for value in (after, eager, exact))
    run_error, eager_error = (_size(value - right) for value in (new, old))
    misplaced = int((~(_alike(new, old) | _alike(new, right) | _overflows(new, right, after.dtype))).sum())
    is_explained = not misplaced and run_error <= max(_MULTIPLE * eager_error, _resolution(after, right))
    return replace(change, advance=Advance.RIGHT) if is_explained else replace(change, misplaced=misplaced)


def judged_by_noise(
    change: StateChange, after: torch.Tensor, exact: torch.Tensor, noisy: Sequence[torch.Tensor]
) -> StateChange:
    """The change, as the program says if the state moves about as far when everything is rounded otherwise.

    Of integers and booleans every wrong element has to be another one in one of these evaluations.

    Args:
        noisy: the state after the call in evaluations in float64 with noise of NOISE_UNITS.
    """
    new, right, *others = (real(value).double().reshape(-1) for value in (after, exact, *noisy))
    if after.dtype.is_floating_point or after.dtype.is_complex:
        moved = max((_size(other - right) for other in others), default=0.0)
        is_explained = not change.misplaced and _size(new - right) <= _NOISE_MULTIPLE * moved
    else:
        wrong = new != right
        for other in others:
            wrong &= other == right
        is_explained = not bool(wrong.any())
    return replace(change, advance=Advance.RIGHT) if is_explained else change


def _alike(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """True where both are finite, both NaN, or the same infinity."""
    return (first.isfinite() & second.isfinite()) | (first == second) | (first.isnan() & second.isnan())


def _overflows(values: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """True where an infinity stands for a number that is beyond what a dtype holds, or nearly so."""
    import torch

    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros_like(values, dtype=torch.bool)
    largest = torch.finfo(dtype).max
    return values.isinf() & (exact.abs() >= largest * (1 - _WRONG_FROM)) & (values.sign() == exact.sign())


def _resolution(state: torch.Tensor, values: torch.Tensor) -> float:
    """One ULP of a state's largest element; 0 for integers."""
    import torch

    if not (state.dtype.is_floating_point or state.dtype.is_complex):
        return 0.0
    eps: float = torch.finfo(state.dtype).eps
    return eps * _size(values)


def _size(values: torch.Tensor) -> float:
    """The largest of the values that are finite; 0 without any."""
    finite = values[values.isfinite()]
    return float(finite.abs().amax()) if finite.numel() else 0.0
