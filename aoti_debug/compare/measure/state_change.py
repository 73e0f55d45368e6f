"""Compares the change of a model's state in a call with the program's. Runs in a child process.

A state that has not changed, or has changed twice, is as far from the program's as the change is large; rounding in the
program is small beside the change, or else nothing can be said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.compare.protocol.measurement import Advance, StateChange

if TYPE_CHECKING:
    import torch

_WRONG_FROM = 0.5  # of the change
_MULTIPLE = 8.0  # of eager's own error: other orders of summing may round as much worse
_ROUNDING = 16.0  # a change that is smaller than this many ULP of the state's largest element says nothing


def state_change(
    name: str, call: int, launch: str, before: torch.Tensor, after: torch.Tensor, expected: torch.Tensor
) -> StateChange:
    """Compares a state with what it should be after a call."""
    import torch

    old, new, right = (_real(tensor).double().reshape(-1) for tensor in (before, after, expected))
    change = _size(right - old)
    difference = _size(new - right)
    scale = float(right[right.isfinite()].abs().amax()) if bool(right.isfinite().any()) else 0.0
    resolution = torch.finfo(after.dtype).eps if after.dtype.is_floating_point or after.dtype.is_complex else 0.0
    floor = _ROUNDING * resolution * scale
    if (change <= floor and difference <= floor) or difference <= _WRONG_FROM * change:
        advance = Advance.RIGHT
    elif bool(((new == old) | (new.isnan() & old.isnan())).all()):
        advance = Advance.NOT_AT_ALL
    elif _size(new - (2 * right - old)) <= 1e-3 * change:
        advance = Advance.TWICE
    else:
        advance = Advance.OTHERWISE
    return StateChange(name, call, launch, advance, change, difference)


def judged_by_double(change: StateChange, after: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> StateChange:
    """The change, as the program says if rounding explains it: eager is about as far from float64.

    Args:
        after: the state after the call of the run.
        eager: after that of the program in its own dtypes.
        exact: after that of the program in float64.
    """
    import torch

    right = _real(exact).double().reshape(-1)
    run_error, eager_error = (_size(_real(value).double().reshape(-1) - right) for value in (after, eager))
    scale = float(right[right.isfinite()].abs().amax()) if bool(right.isfinite().any()) else 0.0
    is_rounded = after.dtype.is_floating_point or after.dtype.is_complex
    resolution = torch.finfo(after.dtype).eps * scale if is_rounded else 0.0
    is_explained = run_error <= max(_MULTIPLE * eager_error, resolution)
    return replace(change, advance=Advance.RIGHT) if is_explained else change


def _size(values: torch.Tensor) -> float:
    """The largest of the values that are finite; 0 without any."""
    finite = values[values.isfinite()]
    return float(finite.abs().amax()) if finite.numel() else 0.0


def _real(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
