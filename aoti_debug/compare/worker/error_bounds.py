"""Bounds of the error that rounding makes in each element of a value of a region. Runs in a child process.

Every operator adds its own error: that of the function that it approximates, or of a rounding. The errors of its
arguments are followed through it: in float64 it is evaluated with each argument moved up and down by its error. So
1 - tanh(x) may be far off where it is small, and tanh(x) may not. What a launch reads is exact.

Only operators on single elements, and those that arrange elements, are followed. What depends on any other one, on
float64, or on memory that is overwritten has no such bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.arguments import ExportedWeights, python_value
from aoti_debug.compare.evaluate.arithmetic import Arithmetic, wide
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.evaluate.rounding_errors import FUNCTION_BOUNDS
from aoti_debug.compare.measure.ulp import ulp
from aoti_debug.package.program_graphs import MEMBER_OF, Graph, Node, NodeKind, Reference, ValueKey

if TYPE_CHECKING:
    import torch

_APPROXIMATION = 1.5  # times the bound of a function: a kernel may also round its argument or its result once more
_ROUNDING = 0.75  # ULP of an operation that is rounded once: half of one, and half again for another order
_DIVISION_CUDA = 3.0  # ULP: div.full of PTX, 2 ULP, and half as many again
_MAX_MULTIPLIED = 64  # the largest power that is computed by multiplications
_HALF_DTYPES = ("float16", "bfloat16")
_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_ARRANGED = frozenset(
    {"alias", "as_strided", "cat", "clone", "constant_pad_nd", "detach", "diagonal", "embedding", "expand", "flip"}
    | {"gather", "index", "index_select", "permute", "repeat", "reshape", "roll", "select", "slice", "split", "unbind"}
    | {"split_with_sizes", "squeeze", "stack", "t", "transpose", "unsqueeze", "view", "_unsafe_view", "unfold", "where"}
    | {
        "abs",
        "neg",
        "relu",
        "maximum",
        "minimum",
        "clamp",
        "clamp_min",
        "clamp_max",
        "fmax",
        "fmin",
        "sign",
        "copysign",
    }
    | {"floor", "ceil", "round", "trunc", "isnan", "isinf", "eq", "ne", "lt", "le", "gt", "ge", "iota", "arange"}
    | {"logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_not"}
    | {"bitwise_xor", "copysign", "lift_fresh_copy", "inductor_force_stride_order", "masked_fill", "getitem"}
    | {"expand_as", "view_as", "broadcast_in_dim", "hardtanh"}
)  # the names of operators that round nothing
_ROUNDED = {"convert_element_type": 1, "_to_copy": 1, "full": 1, "full_like": 1, "scalar_tensor": 1, "fill": 1}
_ROUNDED |= {"add": 1, "sub": 1, "rsub": 1, "mul": 1, "div": 1, "fma": 2, "square": 1, "addcmul": 3, "addcdiv": 3}
_ROUNDED |= {"true_divide": 1, "lerp": 3, "leaky_relu": 1, "deg2rad": 1, "rad2deg": 1}  # and how often they round
_ADDS_PRODUCTS = {"fma": (2,), "addcmul": (0,), "addcdiv": (0,), "lerp": (0, 1)}  # and the places of what they add
# How far results may be apart where the ends of an interval of arguments say nothing about what lies between
_OSCILLATES = {"sin": 2.0, "cos": 2.0, "tan": math.inf}
_FAR = 0.5
_SCALED = {"mul", "div", "true_divide", "convert_element_type", "_to_copy"}  # they keep relative errors as they are


class BoundedEvaluation(Evaluation):
    """The values of a graph's nodes in float64, and how far rounding may move them."""

    def __init__(self, reference: Reference, graph: Graph, device: str, weights: ExportedWeights | None = None) -> None:
        super().__init__(reference, graph, Arithmetic.DOUBLE, device, weights=weights)
        self._errors: dict[ValueKey, Any] = {}
        self._summands: dict[str, float] = {}  # of functions, and of products of their results

    def run(self, node: Node, size: int | None = None) -> None:
        """Evaluates a node, and bounds its error, if its operator is one that is followed."""
        super().run(node, size)
        key = ValueKey(node.name)
        if node.kind is not NodeKind.CALL or size is not None or key not in self.values:
            return
        try:
            self._errors[key] = self._error(node, self.values[key])
        except NotEvaluableError:  # for arguments that are moved
            self._errors[key] = None
        for dropped in self._errors.keys() - self.values.keys():
            del self._errors[dropped]

    def error(self, key: ValueKey) -> torch.Tensor:
        """The bound of the error of each element of a value, absolute, in float64; infinite where any may come out.

        Raises:
            NotEvaluableError: the value could not be evaluated, or has no bound.
        """
        self._require(key)
        error = self._errors.get(key)
        if error is None:
            raise NotEvaluableError(f"the error of {key} has no bound")
        found: torch.Tensor = error
        return found

    def _error(self, node: Node, result: Any) -> Any:
        """The bound of the errors of a result, in its structure; None where there is none."""
        import torch

        keys = {name: self._graph.value_for(name, node.name) for name in node.inputs}
        if not is_followed(node) or any(key in self._errors and self._errors[key] is None for key in keys.values()):
            return None
        current = {name: wide(self.values.held(key)) for name, key in keys.items()}
        errors = {name: self._argument_error(node, key, current[name]) for name, key in keys.items()}
        uncertain = [name for name, error in errors.items() if _is_any(error)]
        error = _map(_zero, result)
        for name in uncertain:
            factor = len(uncertain) if _is_discrete(result) else 1  # that together may decide what none does alone
            changes = [
                _map(_change, self._with(node, {**current, name: other}), result)
                for other in _moved(current[name], errors[name], factor)
            ]
            error = _map(_add, error, _map(_larger, *changes))
        if uncertain and _name(node) in _OSCILLATES:
            error = torch.where(errors[uncertain[0]] < _FAR, error, _OSCILLATES[_name(node)])
        for other in self._with_rounded_numbers(node, current):
            error = _map(_add, error, _map(_change, other, result))
        if not isinstance(result, torch.Tensor):
            return error
        if result.is_floating_point():
            size = result.abs() + self._terms(node, current)
            return _with_own(node, result, size, error, self._device) + self._summand(node) * ulp(result, torch.float32)
        return error if result.dtype is torch.bool or not _is_any(error) else None

    def _terms(self, node: Node, current: Mapping[str, Any]) -> torch.Tensor | float:
        """The sizes of what an operator adds to a rounded product: both may cancel, and the rounding stays."""
        import torch

        name, is_scaled = _name(node), node.kwargs.get("alpha", 1) != 1
        if name not in _ADDS_PRODUCTS and not (is_scaled and name in ("add", "sub", "rsub")):
            return 0.0
        places = [place for place in _ADDS_PRODUCTS.get(name, (0, 1)) if place < len(node.args)]
        terms = [python_value(node.args[place], current, self._arithmetic, self._device) for place in places]
        return sum((abs(term) for term in terms if isinstance(term, torch.Tensor | int | float)), start=0.0)

    def _summand(self, node: Node) -> float:
        """The ULP by which absolute errors of functions move a sum of their results; products pass them on instead."""
        name, bound = _name(node), FUNCTION_BOUNDS.get(_name(node))
        inherited = max((self._summands.get(read, 0.0) for read in node.inputs), default=0.0)
        if name in _SCALED or name in _ARRANGED:
            self._summands[node.name], inherited = inherited, 0.0
        if bound is not None:
            self._summands[node.name] = bound.summand_on(self._device)
        return inherited

    def _argument_error(self, node: Node, key: ValueKey, value: Any) -> Any:
        """The error of an argument, with that of how the function itself reads it; None if it is exact."""
        import torch

        error, bound = self._errors.get(key), FUNCTION_BOUNDS.get(_name(node))
        if bound is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return error
        rounding = bound.argument_on(self._device) * ulp(value, torch.float32)
        if not self._device.startswith("cpu"):
            size, least = value.abs(), torch.finfo(torch.float32).smallest_normal
            misread = torch.where(size > 0, least, 0.0) if bound.misreads_subnormals else size
            rounding = torch.where(size < least, misread, rounding)
        if not _is_any(rounding):
            return error
        return rounding if error is None else error + rounding

    def _with(self, node: Node, current: Mapping[str, Any], number: Callable[[float], float] = float) -> Any:
        """The result of a node for other values of its arguments.

        Args:
            number: what to take for the Python numbers among them.
        """

        def argument(item: Any) -> Any:
            if isinstance(item, float):
                return number(item)
            if isinstance(item, list | tuple):
                return [argument(part) for part in item]
            return python_value(item, current, self._arithmetic, self._device)

        return self.call(node, [argument(a) for a in node.args], {k: argument(v) for k, v in node.kwargs.items()})

    def _with_rounded_numbers(self, node: Node, current: Mapping[str, Any]) -> Iterator[Any]:
        """Yields the results of a node whose Python numbers are rounded, as kernels do, if that changes one of them."""
        import torch

        numbers = list(_floats([*node.args, *node.kwargs.values()]))
        names = {type_.dtype for name in node.inputs for type_ in self._graph.by_name[name].types if type_ is not None}
        for dtype in (torch.float32, *(getattr(torch, name) for name in names if name in _HALF_DTYPES)):
            if dtype is torch.float32 or node.types[0] is None or node.types[0].dtype == "bool":

                def rounded(number: float, dtype: torch.dtype = dtype) -> float:
                    return float(torch.tensor(number, dtype=dtype))

                if any(math.isfinite(number) and rounded(number) != number for number in numbers):
                    yield self._with(node, current, rounded)


def is_followed(node: Node) -> bool:
    """True if errors can be followed through a node."""
    name = _name(node)
    known = name in _ARRANGED or name in _ROUNDED or name in FUNCTION_BOUNDS
    rounds_decimals = node.target.endswith(".decimals")  # a product is rounded before
    dtypes = [type_.dtype for type_ in node.types if type_ is not None]
    are_known = bool(dtypes) and all(dtype in ("float32", *_HALF_DTYPES, *_INTEGERS) for dtype in dtypes)
    return known and not rounds_decimals and not node.mutates and are_known


def followed(graph: Graph, names: Sequence[str]) -> frozenset[str]:
    """The nodes of some, in their order, whose errors have a bound: they and those that they depend on are followed.

    What is not among the names is given, and exact.
    """
    given = {node.name for node in graph.nodes} - set(names)
    found: set[str] = set()
    for name in names:
        node = graph.by_name[name]
        keys = [graph.value_for(read, name) for read in node.inputs]
        if node.kind is not NodeKind.CALL or (
            is_followed(node) and all(key.node in given or (not key.after and key.node in found) for key in keys)
        ):
            found.add(name)
    return frozenset(found)


def _name(node: Node) -> str:
    """The name of its operator: "tanh" for "aten.tanh.default"."""
    if node.target == MEMBER_OF:
        return "getitem"
    namespace, *parts = node.target.split(".")
    return parts[0].removeprefix("special_") if namespace in ("aten", "prims") and parts else ""


def _with_own(
    node: Node, result: torch.Tensor, rounded: torch.Tensor, error: torch.Tensor, device: str
) -> torch.Tensor:
    """The error of a result, with what the operator adds to that of its arguments.

    Args:
        rounded: the size of what it rounds.
    """
    import torch

    name, bound = _name(node), FUNCTION_BOUNDS.get(_name(node))
    step = ulp(result, torch.float32)
    is_cpu = device.startswith("cpu")
    if bound is not None:
        own = step * (_APPROXIMATION * max(bound.on(device), _powers(node)))
    elif name in _ROUNDED:
        units = _DIVISION_CUDA if name.endswith(("div", "divide")) and not is_cpu else _ROUNDING * _ROUNDED[name]
        own = units * ulp(rounded, torch.float32)
    else:
        own = torch.zeros_like(result)
    limits = torch.finfo(torch.float32)
    size = result.abs()
    if bound is not None and (bound.flushes or not is_cpu):
        own = torch.where(size < limits.smallest_normal, own.maximum(size), own)
    (type_,) = node.types
    if type_ is not None and type_.dtype in _HALF_DTYPES and own.any():
        own = own + ulp(result, getattr(torch, type_.dtype)) / 2  # it may be rounded to its own dtype, or not
    return torch.where((size > limits.max) & result.isfinite(), torch.inf, error + own)


def _powers(node: Node) -> float:
    """The ULP of an integral power, which may be computed by multiplications; 0 for any other function."""
    exponent = node.args[1] if _name(node) == "pow" and len(node.args) > 1 else 0
    is_integral = (
        isinstance(exponent, int | float) and float(exponent).is_integer() and abs(exponent) <= _MAX_MULTIPLIED
    )
    return abs(float(exponent)) if is_integral else 0.0


def _moved(value: Any, error: Any, factor: float) -> Iterator[Any]:
    """Yields an argument moved up and down; a boolean turned over where it may be."""
    import torch

    if isinstance(value, list | tuple):
        pairs = [list(_moved(v, e, factor)) for v, e in zip(value, error, strict=True)]
        yield from ([pair[0] for pair in pairs], [pair[-1] for pair in pairs])
    elif value.dtype is torch.bool:
        yield value ^ (error > 0)
    else:
        yield value + error * factor
        yield value - error * factor


def _change(moved: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """How far a result is moved; infinite where only one of the two is a finite number."""
    import torch

    change = (moved.double() - result.double()).abs()
    alike = (moved == result) | (moved.isnan() & result.isnan())
    return torch.where(alike, 0.0, change.nan_to_num(math.inf, math.inf))


def _map(function: Callable[..., Any], *values: Any) -> Any:
    """The results of a function for tensors, or for the tensors of lists."""
    if isinstance(values[0], list | tuple):
        return [_map(function, *items) for items in zip(*values, strict=True)]
    return function(*values)


def _zero(value: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.zeros(value.shape, dtype=torch.float64, device=value.device)


def _add(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first + second


def _larger(first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    return first.maximum(others[0]) if others else first


def _is_any(error: Any) -> bool:
    """True if an error is not 0 everywhere. None is the error of what a launch reads: 0."""
    if isinstance(error, list | tuple):
        return any(map(_is_any, error))
    return error is not None and bool(error.any())


def _is_discrete(result: Any) -> bool:
    import torch

    return isinstance(result, torch.Tensor) and not result.is_floating_point()


def _floats(values: Any) -> Iterator[float]:
    for value in values:
        if isinstance(value, float):
            yield value
        elif isinstance(value, list | tuple):
            yield from _floats(value)
