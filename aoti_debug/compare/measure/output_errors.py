"""The outputs of a model against what they should be."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import unravel
from aoti_debug.runs.rundir.formats.stored_tensor import FileLayout, StoredTensor, layout_of, open_tensor

# The largest relative error, root mean square, that rounding in a whole model is taken to explain.
_ROUNDING = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 1e-2}
_ROUNDING |= {"bfloat16": 5e-2, "bcomplex32": 5e-2, "complex32": 1e-2}
_MULTIPLE = 8.0  # of eager's own error: other orders of summing may round as much worse
NOISE_MULTIPLE = 16.0  # of how far an output moves when every operator rounds otherwise
_UNIT = {"float64": 2.0**-52, "complex128": 2.0**-52, "float32": 2.0**-23, "complex64": 2.0**-23}
_UNIT |= {"float16": 2.0**-10, "complex32": 2.0**-10, "bfloat16": 2.0**-7, "bcomplex32": 2.0**-7}
_FAR = 1e-2  # relative, root mean square: what no user takes for rounding
_NOISE = 0.5  # relative, against float64: not one digit is right
_NEAR = 10.0  # times the rounding of a model with results of about 1
_UNITS = 4.0  # of the dtype of an output: a difference that is no rounding in its last place
_COARSE = 0.25  # of floating dtypes of 8 bits and less
_ROUNDING |= dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), _COARSE)


@dataclass(frozen=True)
class ReturnedElement:
    """An element of an output.

    Attributes:
        index: its coordinates.
        actual, expected: what it is, and what it should be, as text.
    """

    index: tuple[int, ...]
    actual: str
    expected: str


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """The difference of one output from what it should be.

    Attributes:
        index: among what the model returns, from 0.
        elements, different: the number of elements, and of those whose bytes differ.
        relative: root of the mean squared difference, divided by the root of the mean square of what it should be; inf
            where only one of them is finite.
        computed: the coarsest floating dtype that the program computes in; "" for that of the output.
        double: `relative` against what it should be in float64; None if that is not known.
        eager_double: that of what it should be in its own dtypes: what rounding does in eager.
        fault: a fault that no rounding explains, as a predicate: "is float64[4], where eager returns float32[4]"; ""
            without one.
        misplaced: the number of elements that are NaN or infinite otherwise than what they should be.
        example: the first of these, or else the one that is farthest off; None where they are equal, or no numbers.
        arithmetic: the coarsest floating dtype of the program's operators that compute; in `computed` also those of
            casts and of what is only moved count.
        moved: `double` of the program itself in float64 when every operator rounds otherwise; None if it is not known.
        nonfinite: the number of elements that are NaN or infinite, whatever they should be.
        eager_dtype: the dtype of what eager returns, if that is another; else "".
    """

    index: int
    dtype: str
    elements: int
    different: int
    relative: float
    computed: str = ""
    double: float | None = None
    eager_double: float = 0.0
    fault: str = ""
    misplaced: int = 0
    example: ReturnedElement | None = None
    arithmetic: str = ""
    moved: float | None = None
    nonfinite: int = 0
    eager_dtype: str = ""

    @property
    def may_have_lost_rounding(self) -> bool:
        """True if it differs from what it should be by more than the rounding of operators that compute explains."""
        if self.fault or not self.different or not is_low_precision(self.computed):
            return False
        if self.misplaced or not is_low_precision(self.arithmetic):
            return True
        return self.is_another_decision if is_exact(self.dtype) else self.relative > _rounding_of(self)

    @property
    def is_far_off(self) -> bool:
        """True if it is farther off than numbers of these dtypes are rounded, although eager may be as far off."""
        if self.fault or not self.different or self.is_noise:
            return False
        if is_exact(self.dtype):
            return self.dtype == "bool" or self.relative > _FAR
        return self.relative > _tolerance_of(self)

    @property
    def tolerated(self) -> float | None:
        """The relative error up to which a difference of more than a few units counts as rounding in 16 bits or less.

        None of an output that does not differ so, is judged by another rule, or is farther off.
        """
        if not self.different or is_exact(self.dtype) or not is_low_precision(self.computed or self.dtype):
            return None
        is_told = self.misplaced or self.is_far_off or self.has_lost_rounding or self.is_noise or not self.is_right
        return None if is_told or self.is_nearly_equal else _tolerance_of(self)

    @property
    def is_noise(self) -> bool:
        """True if it is next to zero and hardly a digit is right, in eager as well: what numbers that cancel leave."""
        is_number = not (self.fault or self.misplaced or is_exact(self.dtype)) and self.relative > _FAR
        if not is_number or self.example is None or self.double is None or "complex" in self.dtype:
            return False
        off = abs(float(self.example.actual) - float(self.example.expected))
        return min(self.double, self.eager_double) >= _NOISE and off <= _NEAR * _rounding_of(self)

    @property
    def is_another_decision(self) -> bool:
        """True if a truth value differs, or an integer by more than 1: that is more than a step of quantisation."""
        if self.example is None or not is_exact(self.dtype):
            return False
        return self.dtype == "bool" or abs(int(self.example.actual) - int(self.example.expected)) > 1

    @property
    def is_nearly_equal(self) -> bool:
        """True if no element is off by more than a few units in the last place of the one that is farthest off."""
        if not self.different:
            return not self.fault
        if self.fault or self.misplaced or self.example is None or self.dtype not in _UNIT or "complex" in self.dtype:
            return False
        actual, expected = float(self.example.actual), float(self.example.expected)
        return abs(actual - expected) <= _UNITS * _UNIT[self.dtype] * abs(expected)

    @property
    def has_lost_rounding(self) -> bool:
        """True if rounding in eager makes that difference: float64, which does not round, is much nearer to the run."""
        if not self.may_have_lost_rounding or self.double is None:
            return False
        least = 0.0 if is_exact(self.dtype) else _UNITS * _UNIT.get(self.dtype, _COARSE)
        return self.relative > least and self.eager_double > _MULTIPLE * self.double

    @property
    def is_explained_by_noise(self) -> bool | None:
        """True if it is wrong, and rounding elsewhere would move it as far; None if that is not known."""
        return None if self.moved is None else far_off(self) <= NOISE_MULTIPLE * self.moved

    @property
    def is_right(self) -> bool:
        """True if rounding explains the difference: that of any model of these dtypes, or eager's own in this one.

        In less than 32 bits it also decides what overflows, and what an integer is.
        """
        if self.fault:
            return False
        if not self.different or (is_low_precision(self.computed) and not _is_number(self)):
            return True
        rounding = _rounding_of(self)
        if self.relative <= rounding or self.double is None:
            return self.relative <= rounding
        return self.double <= max(rounding, _MULTIPLE * self.eager_double)


def errors(actual: Mapping[int, Path], expected: Mapping[int, Path]) -> tuple[OutputError, ...]:
    """The errors of the outputs that both have, in the same dtype and number of elements; see `of_other_kind`.

    Raises:
        RunDirError: a file is damaged.
    """
    common = sorted({*actual} & {*expected})
    found = ((index, open_tensor(actual[index]), open_tensor(expected[index])) for index in common)
    alike = ((index, first, second) for index, first, second in found if _kind(first) == _kind(second))
    return tuple(_error(index, first, second, _type(expected[index]).shape) for index, first, second in alike)


def of_other_kind(actual: Mapping[int, Path], expected: Mapping[int, Path]) -> tuple[OutputError, ...]:
    """The outputs of another dtype or shape than they should have, and those that only one side returns.

    Raises:
        RunDirError: a file is damaged.
    """
    found = []
    for index in sorted({*actual, *expected}):
        returned, wanted = (_type(files[index]) if index in files else None for files in (actual, expected))
        if returned == wanted:
            continue
        known = returned or wanted
        assert known is not None
        if returned is None:
            fault = f"is not returned, where eager returns {_text(known)}"
        elif wanted is None:
            fault = f"is {_text(known)}, where eager returns no tensor or number"
        else:
            fault = f"is {_text(returned)}, where eager returns {_text(wanted)}: another {_other(returned, wanted)}"
        count = math.prod(known.shape)
        other = "" if wanted is None or wanted.dtype == known.dtype else wanted.dtype
        error = OutputError(index=index, dtype=known.dtype, elements=count, different=count, relative=math.inf)
        found.append(replace(error, fault=fault, eager_dtype=other))
    return tuple(found)


def with_faults(
    found: Iterable[OutputError], faults: Mapping[int, str], actual: Mapping[int, Path]
) -> tuple[OutputError, ...]:
    """The errors with faults of some outputs, also of those that have no error yet.

    Raises:
        RunDirError: a file is damaged.
    """
    known = {error.index: error for error in found}
    for index, fault in faults.items():
        if index not in known and index in actual:
            held = open_tensor(actual[index])
            known[index] = OutputError(index=index, dtype=held.dtype, elements=held.numel, different=0, relative=0.0)
        if index in known:
            known[index] = replace(known[index], fault=fault)
    return tuple(known[index] for index in sorted(known))


def _type(path: Path) -> FileLayout:
    layout = layout_of(path)
    return FileLayout(layout.dtype, layout.shape, (), 0, 0)


def _text(layout: FileLayout) -> str:
    return f"{layout.dtype}{list(layout.shape)}"


def _other(first: FileLayout, second: FileLayout) -> str:
    """ "dtype and shape": in what two tensors differ."""
    names = ("dtype",) if first.dtype != second.dtype else ()
    return " and ".join((*names, *(("shape",) if first.shape != second.shape else ())))


def with_double(
    found: Iterable[OutputError], actual: Mapping[int, Path], eager: Mapping[int, Path], double: Mapping[int, Path]
) -> tuple[OutputError, ...]:
    """The errors with those of what is returned, and of eager, against float64, where that is known.

    Raises:
        RunDirError: a file is damaged.
    """
    judged = []
    for error in found:
        with contextlib.suppress(TypeError):  # packed: there are no numbers
            if error.index in double:
                exact = double[error.index]
                both = (_numeric_error(other[error.index], exact) for other in (actual, eager))
                error = replace(error, double=next(both), eager_double=next(both))
        judged.append(error)
    return tuple(judged)


def of_program(found: Iterable[OutputError], dtypes: Callable[[int], Iterable[str]]) -> tuple[OutputError, ...]:
    """The errors of outputs of a program; rounding is that of the coarsest dtype behind each of them.

    Args:
        dtypes: those that an output depends on, by its number.
    """
    return tuple(replace(error, computed=coarsest_of(dtypes(error.index))) for error in found)


def with_casts(found: Iterable[OutputError], computed: Callable[[int], Iterable[str]]) -> tuple[OutputError, ...]:
    """The errors with the coarsest dtype that operators compute in.

    Args:
        computed: the dtypes of the results of operators that compute which an output depends on, by its number.
    """
    return tuple(replace(error, arithmetic=coarsest_of(computed(error.index))) for error in found)


def decibels(relative: float) -> float | None:
    """The signal-to-noise ratio of a relative error, root mean square, in dB; None for 0 and infinity."""
    return -20 * math.log10(relative) if 0 < relative < math.inf else None


def far_off(error: OutputError) -> float:
    """The relative error of an output against float64, as far as it is beyond eager's own."""
    if error.double is None or error.double <= NOISE_MULTIPLE * error.eager_double:
        return 0.0
    return error.double


def is_exact(dtype: str) -> bool:
    """True for integers and truth values."""
    return dtype == "bool" or dtype.startswith(("int", "uint"))


def _rounding_of(error: OutputError) -> float:
    """The relative error that rounding in its own dtype, and in that of the program, is taken to explain."""
    if is_exact(error.dtype):
        return 0.0
    return max(rounding_in(dtype) for dtype in (error.dtype, error.computed or error.dtype))


def _tolerance_of(error: OutputError) -> float:
    """The relative error up to which a difference from eager is taken for rounding."""
    return max(_FAR, 2 * _rounding_of(error))


def _is_number(error: OutputError) -> bool:
    return math.isfinite(error.relative) and error.dtype in _ROUNDING


def coarsest_of(dtypes: Iterable[str]) -> str:
    """The dtype of these that rounds most; "" if none is floating."""
    return max((dtype for dtype in dtypes if dtype in _ROUNDING), key=_ROUNDING.__getitem__, default="")


def rounding_in(dtype: str) -> float:
    """The largest relative error that rounding in a whole model of this dtype is taken to explain."""
    return _ROUNDING.get(dtype, _COARSE)


def is_low_precision(dtype: str) -> bool:
    """True for floating dtypes of less than 32 bits."""
    return _ROUNDING.get(dtype, 0.0) > _ROUNDING["float32"]


def output_error(actual: Path, expected: Path) -> OutputError:
    """The error of one tensor file against another of the same dtype and number of elements.

    Raises:
        RunDirError: a file is damaged.
    """
    return _error(0, open_tensor(actual), open_tensor(expected), _type(expected).shape)


def _numeric_error(actual: Path, expected: Path) -> float:
    """The relative error of one tensor file against another of the same number of elements."""
    first, second = open_tensor(actual), open_tensor(expected)
    return math.inf if first.numel != second.numel else _relative(first.numbers(), second.numbers())


def _kind(tensor: StoredTensor) -> tuple[str, int]:
    return tensor.dtype, tensor.numel


def _error(index: int, actual: StoredTensor, expected: StoredTensor, shape: tuple[int, ...]) -> OutputError:
    different = 0
    if actual.numel:
        first, second = (tensor.data.reshape(tensor.numel, -1) for tensor in (actual, expected))
        different = int((first != second).any(axis=1).sum())
    error = OutputError(index=index, dtype=actual.dtype, elements=actual.numel, different=different, relative=0.0)
    try:
        first, second = actual.numbers(), expected.numbers()
    except TypeError:  # packed: there are no numbers
        return replace(error, relative=math.inf if different else 0.0)
    error = replace(error, nonfinite=_nonfinite(first))
    if not different:
        return error
    misplaced, at = _misplaced(first, second)
    example = ReturnedElement(unravel(at, shape), str(first[at]), str(second[at]))
    return replace(error, relative=_relative(first, second), misplaced=misplaced, example=example)


def _nonfinite(numbers: Any) -> int:
    import numpy as np

    return 0 if numbers.dtype.kind in "biu" else int((~np.isfinite(numbers)).sum())


def _misplaced(actual: Any, expected: Any) -> tuple[int, int]:
    """The number of elements that are NaN or infinite otherwise; and the first of them, or else the farthest off."""
    import numpy as np

    difference = _difference(actual, expected)
    misplaced = ~np.isfinite(difference)
    count = int(misplaced.sum())
    return count, int(misplaced.argmax() if count else difference.argmax())


def _difference(actual: Any, expected: Any) -> Any:
    """The absolute differences, 0 for the same infinity and for two NaN."""
    import numpy as np

    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):  # of infinities, and of signalling NaN
        first, second = actual.astype(wide), expected.astype(wide)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        return np.where(same, 0.0, np.abs(first - second))


def _relative(actual: Any, expected: Any) -> float:
    import numpy as np

    difference = _difference(actual, expected)
    if not np.isfinite(difference).all():
        return math.inf
    with np.errstate(all="ignore"):
        second = expected.astype(np.complex128 if expected.dtype.kind == "c" else np.float64)
    finite = np.abs(second[np.isfinite(second)])
    unit = float(finite.max()) if finite.any() else 1.0  # squares of huge numbers would overflow
    scale = float(np.sqrt(np.mean((finite / unit) ** 2))) if finite.size else 0.0
    size = float(np.sqrt(np.mean((difference / unit) ** 2)))
    return size / scale if scale else (math.inf if size else 0.0)
