"""The effect of rounding to a narrower dtype, on the numbers of a tensor and on the outputs of a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from aoti_debug.base.abi import Phase
from aoti_debug.base.dtypes import FLOAT_FORMATS, FloatFormat
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.measure.output_errors import OutputError, errors, is_exact
from aoti_debug.compare.what_if.substituted_run import Round
from aoti_debug.runs.rundir.formats.stored_tensor import layout_of, open_tensor
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus

ROUNDED = ("float64", "float32", "float16", "bfloat16")  # dtypes whose numbers the runtime can round
_SLICE = 1 << 22  # elements that are looked at together


def changes(target: FloatFormat, dtype: str) -> bool:
    """True if rounding to a target may change numbers of a dtype."""
    own = FLOAT_FORMATS.get(dtype)
    if dtype not in ROUNDED or dtype == target.name:
        return False
    return own is None or own.mantissa_bits > target.mantissa_bits or own.least_exponent < target.least_exponent


@dataclass(frozen=True)
class Headroom:
    """The numbers that a target has no room for, among those of some tensors.

    Attributes:
        elements: their number.
        overflow: finite numbers beyond the largest one.
        to_zero: numbers other than 0 that become 0.
        subnormal: numbers that become subnormal: they keep fewer bits.
        largest: the largest finite magnitude.
    """

    elements: int = 0
    overflow: int = 0
    to_zero: int = 0
    subnormal: int = 0
    largest: float = 0.0

    def __add__(self, other: Headroom) -> Headroom:
        return Headroom(
            self.elements + other.elements,
            self.overflow + other.overflow,
            self.to_zero + other.to_zero,
            self.subnormal + other.subnormal,
            max(self.largest, other.largest),
        )

    def share(self, count: int) -> float:
        """A part of the elements; 0 without any."""
        return count / self.elements if self.elements else 0.0


def headroom(path: Path, target: FloatFormat) -> Headroom:
    """The headroom of a saved tensor of a floating dtype.

    Raises:
        RunDirError: the file is missing or damaged.
    """
    import numpy as np

    tensor = open_tensor(path)
    found = Headroom()
    for start in range(0, tensor.numel, _SLICE):
        size = np.abs(tensor.numbers(start, start + _SLICE).astype(np.float64))
        size = size[np.isfinite(size)]
        normal = target.least_normal - target.smallest / 2  # from here on, it is rounded to a normal number
        found += Headroom(
            elements=min(_SLICE, tensor.numel - start),
            overflow=int((size >= target.limit).sum()),
            to_zero=int(((size > 0) & (size <= target.smallest / 2)).sum()),
            subnormal=int(((size > target.smallest / 2) & (size < normal)).sum()),
            largest=float(size.max()) if size.size else 0.0,
        )
    return found


def roundings(launch: Launch, target: FloatFormat) -> Iterator[tuple[Round, Argument]]:
    """The instructions that round what a launch reads and writes, each with its argument.

    What the target changes nothing of is left out.
    """
    if launch.status is not LaunchStatus.RETURNED:
        return
    for argument in {argument.name: argument for argument in launch.args}.values():
        layout = argument.layout
        if layout is None or not changes(target, layout.dtype):
            continue
        if argument.has_data_before and Phase.BEFORE in argument.files:
            yield Round(launch.id, argument.name, target.name, Phase.BEFORE), argument
        if argument.written:
            yield Round(launch.id, argument.name, target.name, Phase.AFTER), argument


@dataclass(frozen=True)
class OtherChoices:
    """Rows of an output, along its last dimension, whose largest element is another one.

    Attributes:
        rows: their number in all.
    """

    rows: int
    other: int


@dataclass(frozen=True)
class OutputEffect:
    """The change of an output.

    Attributes:
        shape: of the output.
        choices: of a floating output whose last dimension has several elements; None for others.
    """

    error: OutputError
    shape: tuple[int, ...]
    choices: OtherChoices | None


def effects(actual: Mapping[int, Path], expected: Mapping[int, Path]) -> tuple[OutputEffect, ...]:
    """The changes of the outputs that both have.

    Raises:
        RunDirError: a file is damaged.
    """
    found = []
    for error in errors(actual, expected):
        shape = layout_of(expected[error.index]).shape
        found.append(OutputEffect(error, shape, _choices(actual[error.index], expected[error.index], shape)))
    return tuple(found)


def _choices(actual: Path, expected: Path, shape: tuple[int, ...]) -> OtherChoices | None:
    import numpy as np

    first, second = open_tensor(actual), open_tensor(expected)
    if is_exact(first.dtype) or not shape or shape[-1] < 2 or not second.numel:
        return None
    try:
        rows: list[Any] = [tensor.numbers().reshape(-1, shape[-1]) for tensor in (first, second)]
    except TypeError:  # packed: there are no numbers
        return None
    if np.iscomplexobj(rows[0]):
        return None
    chosen = [np.where(np.isnan(of), -np.inf, of).argmax(axis=1) for of in rows]
    return OtherChoices(len(chosen[0]), int((chosen[0] != chosen[1]).sum()))


class Changed:
    """Something that was done to a model, with its effects on the outputs."""

    effects: tuple[OutputEffect, ...]

    @cached_property
    def error(self) -> float:
        """The largest change of an output."""
        return largest_error(self.effects)


def largest_error(of: Iterable[OutputEffect]) -> float:
    """The largest change of an output; infinite where NaN or infinities arise.

    That of a floating output is its relative error, that of integers the share of elements that are others.
    """
    return max((_size(effect.error) for effect in of), default=0.0)


def _size(error: OutputError) -> float:
    if error.misplaced:
        return math.inf
    return error.different / error.elements if is_exact(error.dtype) and error.elements else error.relative
