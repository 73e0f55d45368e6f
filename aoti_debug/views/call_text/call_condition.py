"""The condition of `show --calls --where`: on the values, the dtype and the shape of a tensor of a call."""

from __future__ import annotations

import math
from collections.abc import Iterable

from aoti_debug.base import dtypes
from aoti_debug.base.errors import UsageError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.rundir import watch_condition
from aoti_debug.runs.rundir.watch_condition import Condition, ConditionError, Quantity
from aoti_debug.views.call_text.call import CallTensor

_OF_TYPE = ("numel", "ndim", "dtype")


@dataclass(frozen=True)
class CallCondition:
    """A condition that one tensor of a call has to meet."""

    condition: Condition

    @property
    def needs_values(self) -> bool:
        """True if it is a condition on elements, not only on types."""
        return not watch_condition.names(self.condition).issubset(_OF_TYPE)

    def holds(self, tensor: CallTensor) -> bool:
        """True if it holds for a tensor; what is not known of it meets no comparison."""
        return watch_condition.holds(self.condition, lambda name: _quantity(name, tensor))

    def holds_for_any(self, tensors: Iterable[CallTensor]) -> bool:
        """True if it holds for one of the tensors."""
        return any(map(self.holds, tensors))


def parse_condition(text: str) -> CallCondition:
    """Parses "absmax > 1e4 and dtype == f16".

    Raises:
        UsageError: it does not parse; the message has a caret under the place.
    """
    try:
        parsed = watch_condition.parse(text, numbers=("ndim",), texts=("dtype",))
    except ConditionError as error:
        raise UsageError(
            f"--where does not parse: {error.shown_in(text)}",
            hint="a condition is 'nan', 'absmax > 1e4', 'numel >= 1000 and ndim == 1', 'dtype == f16'",
        ) from error
    return CallCondition(_with_names_of_dtypes(parsed))


def _with_names_of_dtypes(parsed: Condition) -> Condition:
    """The condition with torch's names in place of abbreviated ones: "float16" for "f16" and "torch.float16"."""
    if isinstance(parsed, watch_condition.Joined):
        return watch_condition.Joined(tuple(map(_with_names_of_dtypes, parsed.parts)), parsed.all_of_them)
    if parsed.left.name != "dtype":
        return parsed
    word = str(parsed.right.value).removeprefix("torch.")
    name = next((dtype.name for dtype in dtypes.DTYPES if dtype.abbreviation == word), word)
    return watch_condition.Relation(parsed.left, parsed.sign, watch_condition.ConditionOperand(value=name))


def _quantity(name: str, tensor: CallTensor) -> Quantity:
    match name:
        case "dtype":
            return tensor.dtype or None
        case "ndim":
            return len(tensor.shape)
        case "numel":
            sizes = [int(size) for size in tensor.shape if size.isdecimal()]
            return math.prod(sizes) if len(sizes) == len(tensor.shape) else None
    return None if tensor.statistics is None else watch_condition.statistic(name, tensor.statistics)
