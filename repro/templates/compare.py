"""Compares tensors bit for bit or within a tolerance, and describes the largest differences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
import torch

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class OutputComparison:
    """The result of comparing an output with the recorded one.

    Attributes:
        passes: equal bit for bit, or within the tolerance.
        text: one line.
    """

    passes: bool
    text: str


def compare(got: torch.Tensor, recorded: torch.Tensor, tolerance: float = 0.0) -> OutputComparison:
    """Compares an output with the recorded one.

    Args:
        tolerance: |got - recorded| of finite numbers may be tolerance * (1 + |recorded|), or one step of a floating
            dtype; 0.0: bit for bit.
    """
    text = difference(got, recorded)
    if not text:
        return OutputComparison(passes=True, text="equal bit for bit")
    continuous = got.is_floating_point() or got.is_complex()
    if tolerance > 0.0 and continuous and got.dtype == recorded.dtype and got.shape == recorded.shape:
        mine, theirs = _row(got), _row(recorded)
        if bool(_within(mine, theirs, tolerance).all()):
            return OutputComparison(passes=True, text=f"within {tolerance:g}: {text}")
    return OutputComparison(passes=False, text=text)


def difference(got: torch.Tensor, recorded: torch.Tensor) -> str:
    """Describes how `got` differs from `recorded`; "" if they are equal bit for bit.

    NaN equals NaN of the same bits; 0.0 and -0.0 differ. A relative difference is to the recorded value; a ULP is a
    step from one number of the dtype to the next.
    """
    if got.dtype != recorded.dtype or got.shape != recorded.shape:
        return f"is {kind(got)}, recorded {kind(recorded)}"
    shape = tuple(got.shape)
    got, recorded = _row(got), _row(recorded)
    unequal = unequal_bits(got, recorded)
    count = int(unequal.sum())
    if count == 0:
        return ""
    return f"differs in {count} of {got.numel()} elements: {_worst(got, recorded, unequal, shape)}"


def program_text(expected: torch.Tensor | None, got: torch.Tensor) -> str:
    """Says how an output differs from what the program gives; "" if that is not known, or has another shape.

    Args:
        expected: in float64.
    """
    if expected is None or expected.shape != got.shape or got.numel() == 0:
        return ""
    mine, theirs = _row(got), _row(expected)
    error = (mine.to(theirs.dtype) - theirs).abs().nan_to_num(nan=math.inf)
    worst = int(error.argmax())
    place = ", ".join(map(str, index_of(worst, tuple(got.shape))))
    return f"farthest from the program: [{place}] is {mine[worst].item()!r}, the program gives {theirs[worst].item()!r}"


def unequal_bits(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """bool [numel]: which elements of two tensors of one dtype and shape differ, row-major."""
    return (_bits(_row(one)) != _bits(_row(other))).any(dim=1)


def index_of(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of a row-major position."""
    return tuple(int(i) for i in numpy.unravel_index(position, shape))


def kind(tensor: torch.Tensor) -> str:
    """The dtype and shape: "float32 (2, 4)"."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _row(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)


def _bits(row: torch.Tensor) -> torch.Tensor:
    """uint8 [numel, itemsize]"""
    return row.view(torch.uint8).reshape(row.numel(), row.element_size())


def _wide(row: torch.Tensor) -> torch.Tensor:
    return row.to(torch.complex128 if row.is_complex() else torch.float64)


def _within(got: torch.Tensor, recorded: torch.Tensor, tolerance: float) -> torch.Tensor:
    mine, theirs = _wide(got), _wide(recorded)
    finite = mine.isfinite() & theirs.isfinite()
    near = (mine - theirs).abs() <= tolerance * (1 + theirs.abs())
    same = (_bits(got) == _bits(recorded)).all(dim=1) | (mine.isnan() & theirs.isnan())
    step = _steps(got, recorded) <= 1 if got.is_floating_point() else torch.zeros_like(near)
    return same | (finite & (near | step))


def _steps(got: torch.Tensor, recorded: torch.Tensor) -> torch.Tensor:
    """float64 [numel]: how many numbers of the dtype lie between; exact up to 2**53. Of complex parts the larger."""
    if got.is_complex():
        parts = _steps(torch.view_as_real(got).reshape(-1), torch.view_as_real(recorded).reshape(-1))
        return parts.reshape(-1, 2).amax(dim=1)
    integer = _INTEGERS[got.element_size()]
    largest = torch.iinfo(integer).max
    mine, theirs = got.view(integer).to(torch.int64), recorded.view(integer).to(torch.int64)
    one, other = (mine & largest), (theirs & largest)
    same_sign = mine.signbit() == theirs.signbit()
    return torch.where(same_sign, (one - other).abs().double(), one.double() + other.double())


def _worst(got: torch.Tensor, recorded: torch.Tensor, unequal: torch.Tensor, shape: tuple[int, ...]) -> str:
    def place(at: int) -> str:
        return f"{index_of(at, shape)} ({got[at].item()} here, {recorded[at].item()} recorded)"

    mine, theirs = _wide(got), _wide(recorded)
    finite = mine.isfinite() & theirs.isfinite()
    absolute = torch.where(finite, (mine - theirs).abs(), 0.0)
    relative = torch.where(absolute > 0, absolute / theirs.abs(), 0.0)
    measures = [("abs", absolute), ("rel", relative)]
    if got.is_floating_point() or got.is_complex():
        measures.append(("ULP", torch.where(finite & unequal, _steps(got, recorded), 0.0)))
    parts = []
    if bool((absolute > 0).any()):
        parts += [
            f"max {name} {_figure(name, measure.max().item())} at {place(int(measure.argmax()))}"
            for name, measure in measures
        ]
    special = unequal & ~finite
    if bool(special.any()):
        parts.append(f"{int(special.sum())} with NaN or Inf, the first at {place(int(special.nonzero()[0]))}")
    if not parts:
        parts.append(f"equal in double precision, the first at {place(int(unequal.nonzero()[0]))}")
    elif not bool(special.any()):
        parts.append(_passing(absolute.max().item(), relative.max().item()))
    return "; ".join(parts)


def _figure(name: str, value: float) -> str:
    return f"{value:.0f}" if name == "ULP" and value < 1e7 else f"{value:.3g}"


def _passing(absolute: float, relative: float) -> str:
    """The tolerances that would pass, each alone."""
    choices = [f"atol={_rounded_up(absolute)}"]
    if math.isfinite(relative):
        choices.insert(0, f"rtol={_rounded_up(relative)}")
    return f"passes with {' or '.join(choices)}"


def _rounded_up(value: float) -> str:
    """Two digits, never less than the value."""
    text = f"{value:.2g}"
    return text if float(text) >= value else f"{value * 1.06:.2g}"
