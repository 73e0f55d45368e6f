"""A call of an operator or a launch of a kernel: its text in DebugMode's format, and conditions on its tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

from aoti_debug.base import dtypes
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package import origins
from aoti_debug.runs.rundir import watch_condition
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.watch_condition import Condition, ConditionError, Quantity

_INDENT = "  "
_OF_TYPE = ("numel", "ndim", "dtype")


@dataclass(frozen=True)
class CallTensor:
    """A tensor that a call reads or writes.

    Attributes:
        id: its number, "$4"; a name, "%add", for a value that exists inside of a fused kernel only.
        dtype: torch's name: "float32"; "" if unknown.
        shape: sizes, or expressions of symbolic ones.
        hash: of its bytes, 16 hexadecimal digits; "" if it was not recorded, or not asked for.
        statistics: of its elements; None if they were not recorded.
    """

    id: str
    dtype: str
    shape: tuple[str, ...]
    hash: str = ""
    statistics: Statistics | None = None

    def __str__(self) -> str:
        name = f"t{self.id}" if self.id.startswith("$") else self.id
        if not self.dtype:
            return name
        attributes = f"{{hash={self.hash}}}" if self.hash else ""
        known = dtypes.of_name(self.dtype)
        dtype = self.dtype if known is None else known.abbreviation
        return f"{name}: {dtype}[{', '.join(self.shape)}]{attributes}"


@dataclass(frozen=True)
class Call:
    """A call.

    Attributes:
        operator: "aten::mm", "aten::add.Tensor"; the kernel of a launch: "cpp_fused_relu_1".
        arguments, outputs: their text, with that of the tensors.
        module: path of the innermost module that contains all of it; "" for the model itself.
        tensors: those among the arguments and outputs.
        note: what follows the text after a "#": the launch.
        operators: what a fused kernel computes.
    """

    operator: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str = ""
    tensors: tuple[CallTensor, ...] = ()
    note: str = ""
    operators: tuple[Call, ...] = ()

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        text = f"{self.operator}({', '.join(self.arguments)})"
        if self.outputs:
            text += f" -> {self.outputs[0]}" if len(self.outputs) == 1 else f" -> ({', '.join(self.outputs)})"
        return text + (f"  # {self.note}" if self.note else "")


def list_text(items: Sequence[str]) -> str:
    """ "[t$1: f32[2], t$2: f32[2]]"."""
    return f"[{', '.join(items)}]"


def call_lines(calls: Sequence[Call], depth: int = 0) -> list[str]:
    """The calls in lines, each under the modules that contain it: "[nn.Mod] encoder.layers.0"."""
    known = {call.module for call in calls}
    containing = {module: levels(module, known) for module in known}
    lines: list[str] = []
    open_: tuple[str, ...] = ()
    for call in calls:
        inside = containing[call.module]
        kept = next((n for n, (a, b) in enumerate(zip(open_, inside, strict=False)) if a != b), None)
        kept = min(len(open_), len(inside)) if kept is None else kept
        lines += [f"{_INDENT * (depth + n)}[nn.Mod] {inside[n]}" for n in range(kept, len(inside))]
        open_ = inside
        indent = depth + len(inside)
        lines.append(f"{_INDENT * indent}{call}")
        lines += [f"{_INDENT * (indent + 1)}{operator}" for operator in call.operators]
    return lines


def levels(module: str, known: set[str]) -> tuple[str, ...]:
    """The modules that contain a module, outermost first, and it itself; of the others only those that are known."""
    return tuple(path for path in origins.containing(module) if path and (path == module or path in known))


def common_known_module(modules: Sequence[str], known: set[str]) -> str:
    """The innermost known module that contains all modules; "" for the model itself."""
    around = origins.containing(origins.common_module(modules))
    return next((path for path in reversed(around) if path in known), "")


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
