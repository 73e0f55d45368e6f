"""The outputs of a model against what they should be."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aoti_debug.lazy.dataclass import dataclass
from aoti_debug.rundir.formats.stored_tensor import FileLayout, StoredTensor, open_tensor, opened_file

# The largest relative error, root mean square, that rounding in a whole model is taken to explain.
_ROUNDING = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 1e-2}
_ROUNDING |= {"bfloat16": 5e-2, "complex32": 1e-2}
_MULTIPLE = 8.0  # of eager's own error: other orders of summing may round as much worse
_COARSE = 0.25  # of floating dtypes of 8 bits and less
_ROUNDING |= dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), _COARSE)


@dataclass(frozen=True)
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

    @property
    def is_right(self) -> bool:
        """True if rounding explains the difference: that of any model of these dtypes, or eager's own in this one."""
        if self.fault:
            return False
        if not self.different:
            return True
        exact = self.dtype == "bool" or self.dtype.startswith(("int", "uint"))
        rounding = (
            0.0 if exact else max(_ROUNDING.get(dtype, _COARSE) for dtype in (self.dtype, self.computed or self.dtype))
        )
        if self.relative <= rounding or self.double is None:
            return self.relative <= rounding
        return self.double <= max(rounding, _MULTIPLE * self.eager_double)


def errors(actual: Mapping[int, Path], expected: Mapping[int, Path]) -> tuple[OutputError, ...]:
    """The errors of the outputs that both have, in the same dtype and number of elements; see `of_other_kind`.

    Raises:
        RunDirError: a file is damaged.
    """
    common = (index for index in sorted(actual) if index in expected)
    found = ((index, open_tensor(actual[index]), open_tensor(expected[index])) for index in common)
    return tuple(_error(index, first, second) for index, first, second in found if _kind(first) == _kind(second))


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
        found.append(OutputError(index, known.dtype, count, count, math.inf, fault=fault))
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
            tensor = open_tensor(actual[index])
            known[index] = OutputError(index, tensor.dtype, tensor.numel, 0, 0.0)
        if index in known:
            known[index] = replace(known[index], fault=fault)
    return tuple(known[index] for index in sorted(known))


def _type(path: Path) -> FileLayout:
    with opened_file(path, "np") as (_, layout):
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

    In less than 32 bits rounding also decides what overflows, and what an integer is: such errors are left out.

    Args:
        dtypes: those that an output depends on, by its number.
    """
    kept = (replace(error, computed=coarsest_of(dtypes(error.index))) for error in found)
    return tuple(e for e in kept if not is_low_precision(e.computed) or _is_number(e))


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
    return _error(0, open_tensor(actual), open_tensor(expected))


def _numeric_error(actual: Path, expected: Path) -> float:
    """The relative error of one tensor file against another of the same number of elements."""
    first, second = open_tensor(actual), open_tensor(expected)
    if first.numel != second.numel:
        return math.inf
    return _relative(first.numbers(), second.numbers())


def _kind(tensor: StoredTensor) -> tuple[str, int]:
    return tensor.dtype, tensor.numel


def _error(index: int, actual: StoredTensor, expected: StoredTensor) -> OutputError:
    different = 0
    if actual.numel:
        first, second = (tensor.data.reshape(tensor.numel, -1) for tensor in (actual, expected))
        different = int((first != second).any(axis=1).sum())
    relative = 0.0
    if different:
        try:
            relative = _relative(actual.numbers(), expected.numbers())
        except TypeError:  # packed: there are no numbers
            relative = math.inf
    return OutputError(index, actual.dtype, actual.numel, different, relative)


def _relative(actual: Any, expected: Any) -> float:
    import numpy as np

    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):  # of infinities, and of signalling NaN
        first, second = actual.astype(wide), expected.astype(wide)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        difference = np.where(same, 0.0, np.abs(first - second))
    if not np.isfinite(difference).all():
        return math.inf
    finite = np.abs(second[np.isfinite(second)])
    unit = float(finite.max()) if finite.any() else 1.0  # squares of huge numbers would overflow
    scale = float(np.sqrt(np.mean((finite / unit) ** 2))) if finite.size else 0.0
    size = float(np.sqrt(np.mean((difference / unit) ** 2)))
    return size / scale if scale else (math.inf if size else 0.0)
