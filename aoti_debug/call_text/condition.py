"""A condition on a tensor, "absmax > 1e4", that selects calls."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aoti_debug.call_text.call import ABBREVIATIONS, CallTensor
from aoti_debug.errors import UsageError
from aoti_debug.rundir.statistics import Statistics

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_PATTERN = re.compile(r"\s*(?P<name>[a-z]+)\s*(?:(?P<comparison>==|!=|>=|<=|>|<)\s*(?P<value>\S+)\s*)?\Z")
_HINT = "a condition is 'nan', 'inf', 'absmax > 1e4', 'numel >= 1000', 'ndim == 1' or 'dtype == f16'"


def _largest_magnitude(s: Statistics) -> float | None:
    return None if s.min is None or s.max is None else max(abs(s.min), abs(s.max))


_MEASURED: Mapping[str, Callable[[Statistics], float | None]] = {
    "nan": lambda s: s.n_nan,
    "inf": lambda s: s.n_pos_inf + s.n_neg_inf,
    "zeros": lambda s: s.n_zero,
    "absmax": _largest_magnitude,
    "min": lambda s: s.min,
    "max": lambda s: s.max,
    "mean": lambda s: s.mean,
    "std": lambda s: s.std,
}
_OF_TYPE = ("dtype", "numel", "ndim")


@dataclass(frozen=True)
class Condition:
    """A condition on one tensor.

    Attributes:
        name: the quantity: "absmax".
        comparison: "==", "!=", ">=", "<=", ">" or "<".
        value: a number, or the abbreviation of a dtype.
    """

    name: str
    comparison: str
    value: float | str

    @property
    def needs_values(self) -> bool:
        """True if it is a condition on the elements, not on the type."""
        return self.name in _MEASURED

    def holds(self, tensor: CallTensor) -> bool:
        """True if it holds for a tensor; not for one whose values are not known."""
        actual = self._quantity(tensor)
        if actual is None:
            return False
        return bool(_COMPARISONS[self.comparison](actual, self.value))  # type: ignore[arg-type]

    def holds_for_any(self, tensors: Iterable[CallTensor]) -> bool:
        """True if it holds for one of the tensors."""
        return any(map(self.holds, tensors))

    def _quantity(self, tensor: CallTensor) -> float | str | None:
        if self.name == "dtype":
            return ABBREVIATIONS.get(tensor.dtype, tensor.dtype)
        if self.name == "ndim":
            return len(tensor.shape)
        if self.name == "numel":
            sizes = [int(size) for size in tensor.shape if size.isdecimal()]
            return math.prod(sizes) if len(sizes) == len(tensor.shape) else None
        return None if tensor.statistics is None else _MEASURED[self.name](tensor.statistics)


def parse_condition(text: str) -> Condition:
    """Parses "absmax > 1e4"; a name alone, "nan", stands for "nan > 0".

    Raises:
        UsageError: it is none.
    """
    match = _PATTERN.match(text)
    name = match["name"] if match else ""
    if match is None or name not in (*_MEASURED, *_OF_TYPE):
        raise UsageError(f"--where {text!r} is no condition", hint=_HINT)
    comparison, value = match["comparison"] or ">", match["value"] or "0"
    if name == "dtype":
        if match["comparison"] not in ("==", "!="):
            raise UsageError(f"--where {text!r} is no condition", hint=_HINT)
        return Condition(name, comparison, ABBREVIATIONS.get(value.removeprefix("torch."), value))
    try:
        return Condition(name, comparison, float(value))
    except ValueError as error:
        raise UsageError(f"--where {text!r}: {value} is not a number", hint=_HINT) from error
