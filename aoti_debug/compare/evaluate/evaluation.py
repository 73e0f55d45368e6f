"""Evaluates nodes of a graph over tensors, in one of several arithmetics. Runs in a child process.

A node that overwrites its arguments gets copies of them, so every value is computed once and stays what it is.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate import arithmetic as tensor_float
from aoti_debug.compare.evaluate import functions, higher_order
from aoti_debug.compare.evaluate.arguments import (
    ExportedWeights,
    converted,
    in_own_dtypes,
    python_value,
    weight_of,
    with_rounded_numbers,
)
from aoti_debug.compare.evaluate.arithmetic import (
    Arithmetic,
    Narrow,
    WideValues,
    as_narrow,
    moves,
    narrow,
    product,
    wide,
)
from aoti_debug.compare.evaluate.functions import (
    CONDITION,
    LOOP,
    TORCH_RAISES,
    WITH_GRADIENTS,
    NotEvaluableError,
    RefusedError,
    first_line,
    implementation_of,
    is_random,
)
from aoti_debug.compare.evaluate.rounding_errors import RoundingNoise, largest_of, terms_of
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, ValueKey

if TYPE_CHECKING:
    import torch

BITS = ("aten.view.dtype", "aten.view_as_complex.default")  # operators that depend on how numbers are stored
_MAX_ITERATIONS, _MAX_SECONDS = 1 << 16, 60  # of a loop; one that rounding ends need not end in another arithmetic
TORCH_NAMESPACES = ("aten", "prims", "math", "_operator", "torch")  # whose functions raise nothing else

Adjustment = Callable[[Node, list[Any], Any], Any]


class Evaluation:
    """The values of a graph's nodes.

    Args:
        stored: nodes whose values a kernel stores and may read again: they are rounded to their own dtype.
        adjust: what makes another result, as right, of a node, its arguments and its result; None to leave them.
        weights: where to find weights and inputs that are not set; None for nowhere.
        noise: what rounds otherwise, in float64; None for nothing.

    Attributes:
        values: the known values; every floating tensor in them has the dtype that stands for its own in `arithmetic`.
        fallbacks: operators without this arithmetic, which computed in their own dtype, and why.
        failures: nodes that cannot be evaluated, and why.
        raised: of these, the exceptions that their operators raised.
        random: those of them that draw random numbers from a generator.
        terms: the number of terms of the longest sum or product of terms so far.
        largest_sum: in float64, a bound of what the terms of a sum can add up to, in any order.
    """

    def __init__(
        self,
        reference: Reference,
        graph: Graph,
        arithmetic: Arithmetic,
        device: str,
        stored: Set[str] = frozenset(),
        adjust: Adjustment | None = None,
        weights: ExportedWeights | None = None,
        noise: RoundingNoise | None = None,
    ) -> None:
        self._reference = reference
        self._graph = graph
        self._noise = noise
        self._arithmetic = arithmetic
        self._device = device
        self._stored = stored
        self._adjust = adjust
        self._weights = weights
        self.values = WideValues()
        self.fallbacks: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.raised: dict[str, BaseException] = {}
        self.random: set[str] = set()
        self.terms = 1
        self.largest_sum = 0.0

    def set(self, key: ValueKey, value: Any) -> None:
        """Sets a known value; a tensor is converted to the dtype of this arithmetic, a large input when it is read."""
        is_input = key.node in self._graph.by_name and self._graph.by_name[key.node].kind is not NodeKind.CALL
        if is_input and self._noise is not None:
            held = self._noise.begun(value)
        else:
            held = narrow(value, self._arithmetic) if is_input else value
        self.values[key] = held if isinstance(held, Narrow) else converted(held, self._arithmetic)

    def run(self, node: Node, size: int | None = None) -> None:
        """Evaluates a node, or notes why it, or one that it needs, cannot be evaluated.

        Args:
            size: its value, if it is a known size.
        """
        if size is not None:
            self.values[ValueKey(node.name)] = size
            return
        if node.value is not None:
            self.set(ValueKey(node.name), weight_of(node, node.value, self._device))
            return
        if node.is_empty:
            self.set(ValueKey(node.name), self._without_elements(node))
            return
        if node.kind in (NodeKind.WEIGHT, NodeKind.INPUT):
            self._set_given(node)
            return
        try:
            result = self._result(node)
            self.values[ValueKey(node.name)] = _rounded(node, result) if node.name in self._stored else result
        except NotEvaluableError as error:
            self.failures[node.name] = str(error)
            if isinstance(error, RefusedError):
                self.raised[node.name] = error.raised
            for name in node.mutates:  # what it would have overwritten is not known any more
                self.values.pop(ValueKey(name, node.name), None)

    def value(self, key: ValueKey) -> Any:
        """A value.

        Raises:
            NotEvaluableError: it could not be evaluated.
        """
        self._require(key)
        return self.values[key]

    def _require(self, key: ValueKey) -> None:
        base = self._graph.base_of(key)
        if key not in self.values and base is not None:
            self._require(base)
            self.values[key] = self._viewed(key.node, self.values[base])
        if key in self.values:
            return
        name = key.after or key.node
        text = self.failures.get(name, f"{key} was not evaluated")
        raise RefusedError(text, self.raised[name], name) if name in self.raised else NotEvaluableError(text)

    def _result(self, node: Node) -> Any:
        args, kwargs = self._held_arguments(node)
        if any(isinstance(item, Narrow) for item in args):
            result = self._of_large(node, args, kwargs)
            if result is not None:
                return result
        args, kwargs = wide(args), wide(kwargs)
        if self._arithmetic is Arithmetic.KERNEL:
            args = with_rounded_numbers(self._graph, node, args)
        if node.target == CONDITION:
            return self._branch(args)
        if node.target == LOOP:
            return self._loop(args)
        if node.target == WITH_GRADIENTS:
            return self._results(args[1], args[2:])
        if node.target in functions.DRAWN:
            return self._drawn(node, args, kwargs)
        if is_random(node.target, args, kwargs):
            return self.draw(node, args, kwargs)
        self._count_terms(node, args)
        if node.mutates and functions.overwrites_shared(node, args):
            return self.overwrite_shared(node, args, kwargs)
        if self._noise is not None:
            noisy = self.call(node, self._noise.arguments(node, args, terms_of(node, args)), kwargs)
            return self._noise.result(node, args, noisy)
        result = self.call(node, args, kwargs)
        return result if self._adjust is None else self._adjust(node, args, result)

    def overwrite_shared(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a node for which `overwrites_shared`; raises NotEvaluableError if the order matters."""
        functions.require_filling(node.target)
        return self.call(node, args, kwargs)

    def draw(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a node that draws random numbers from a generator.

        Raises:
            NotEvaluableError: it is not known what it drew.
        """
        self.random.add(node.name)
        raise NotEvaluableError(f"random numbers: {node.target}")

    def _of_large(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operator whose arguments need not be converted as a whole; None for any other one."""
        first, *others = args
        if moves(node.target) and isinstance(first, Narrow) and not kwargs:
            self._count_terms(node, args)
            function = implementation_of(node.target)
            moved = first.moved(lambda tensor: _checked(node, function, [tensor, *wide(others)], {}))
            return moved if moved.nbytes > first.nbytes // 2 else moved.wide()
        result = product(node.target, args, lambda parts: self.call(node, parts, wide(kwargs)))
        if result is not None:
            self._count_terms(node, args)
        return result

    def _count_terms(self, node: Node, args: list[Any]) -> None:
        terms = terms_of(node, as_narrow(args))
        self.terms = max(self.terms, terms)
        if terms > 1 and self._arithmetic is Arithmetic.DOUBLE:
            self.largest_sum = max(self.largest_sum, terms * largest_of(args))

    def _set_given(self, node: Node) -> None:
        """Takes a weight from the exported program, or an input from those of the calls, unless it is set."""
        if ValueKey(node.name) in self.values:
            return
        value = None if self._weights is None else self._weights.given(self._graph, node)
        if value is None or self._graph.mutators.get(node.name):
            why = f"; {self._weights.failure}" if self._weights is not None and self._weights.failure else ""
            self.failures[node.name] = (
                f"it depends on the {node.kind.value} {node.name}, whose values are not known{why}"
            )
        else:
            self.set(ValueKey(node.name), value.to(self._device))

    def _without_elements(self, node: Node) -> torch.Tensor:
        import torch

        (type_,) = node.types
        assert type_ is not None
        sizes = [int(size) if size.isdigit() else 1 for size in type_.shape]
        return torch.empty(sizes, dtype=getattr(torch, type_.dtype), device=self._device)

    def _drawn(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        import torch

        (type_,) = node.types
        seed = args[3] if node.target == functions.INTEGER else args[1]
        if type_ is None or kwargs.get("offset") or seed.numel() != 1:
            raise NotEvaluableError(f"random numbers of a kind that is not known here: {node.target}")
        dtype = torch.float64 if self._arithmetic is Arithmetic.DOUBLE else torch.float32
        result: torch.Tensor = converted(functions.drawn(node.target, args, type_.device, dtype), self._arithmetic)
        return result

    def _branch(self, args: list[Any]) -> list[Any]:
        condition, true_graph, false_graph, operands = args
        return self._results(true_graph if condition else false_graph, operands)

    def _loop(self, args: list[Any]) -> list[Any]:
        condition, body, carried, others = args
        end = time.monotonic() + _MAX_SECONDS
        for _ in range(_MAX_ITERATIONS):
            if not bool(self._results(condition, [*carried, *others])[0]):
                return list(carried)
            if time.monotonic() > end:
                break
            carried = self._results(body, [*carried, *others])
        raise NotEvaluableError(
            f"a while_loop does not end within {_MAX_ITERATIONS} iterations and {_MAX_SECONDS} s in "
            f"{self._arithmetic.value} arithmetic"
        )

    def _results(self, name: str, operands: Sequence[Any]) -> list[Any]:
        """The results of a branch or of the body of a loop."""
        results = self._subgraph(name, self._noise, *operands)
        return results if isinstance(results, list) else [results]

    def _subgraph(self, name: str, noise: RoundingNoise | None, *operands: Any) -> Any:
        """The result of a graph that an operator is passed: one value, or a list of several."""
        graph = self._reference.graph(name, self._graph.function)
        if graph is None:
            raise NotEvaluableError(f"the reference lacks {name}")
        inner = type(self)(self._reference, graph, self._arithmetic, self._device, noise=noise)
        inputs = [node for node in graph.nodes if node.kind is NodeKind.INPUT]
        for node, operand in zip(inputs, operands, strict=True):
            inner.values[ValueKey(node.name)] = operand
        for node in graph.nodes:
            if node.kind is NodeKind.CALL:
                inner.run(node)
        output = graph.nodes[-1]
        result = inner.arguments(output)[0][0]
        self.fallbacks |= inner.fallbacks
        return result

    def arguments(self, node: Node) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a node by position and by name; of what it overwrites, a copy.

        Raises:
            NotEvaluableError: a value that it needs could not be evaluated.
        """
        args, kwargs = self._held_arguments(node)
        return wide(args), wide(kwargs)

    def _held_arguments(self, node: Node) -> tuple[list[Any], dict[str, Any]]:
        """The same, where large inputs keep their own dtype."""
        current: dict[str, Any] = {}
        for name in node.inputs:
            if self._graph.by_name[name].kind is NodeKind.SUBGRAPH:
                current[name] = self._graph_argument(node.target, self._graph.by_name[name].target)
                continue
            key = self._graph.value_for(name, node.name)
            self._require(key)
            if name in node.mutates:
                current[name] = self._overwritten(ValueKey(name, node.name), self.values[key])
            else:
                current[name] = self.values.held(key)
        return [python_value(item, current, self._arithmetic, self._device) for item in node.args], {
            name: python_value(item, current, self._arithmetic, self._device) for name, item in node.kwargs.items()
        }

    def _overwritten(self, key: ValueKey, before: torch.Tensor) -> Any:
        """The tensor that a node gets to overwrite, as the value that it will be: in a copy of what it is a view of."""
        if key not in self.values:
            base = self._graph.base_of(key)
            known = None if base is None else self._graph.value_for(base.node, key.after)
            if base is None or known is None or known not in self.values:
                self.values[key] = self.to_overwrite(before)
            else:
                self.values[key] = self._viewed(key.node, self._overwritten(base, self.values[known]))
        return self.values[key]

    def _viewed(self, name: str, base: Any) -> Any:
        """A view of another tensor than that of the graph."""
        view = self._graph.by_name[name]
        first, *others = view.inputs
        values = {first: base, **{item: self.value(self._graph.value_for(item, name)) for item in others}}
        args = [python_value(item, values, self._arithmetic, self._device) for item in view.args]
        return _checked(view, implementation_of(view.target), args, {})

    def _graph_argument(self, target: str, name: str) -> Any:
        """A graph as an operator takes it: its name, or a function for one that torch's own code computes."""
        if not higher_order.has_own_code(target):
            return name
        noise = None if target in higher_order.VECTORISED else self._noise  # torch.vmap allows no random numbers
        return functools.partial(self._subgraph, name, noise)

    def to_overwrite(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor that a node gets which overwrites a value: a copy."""
        return value.clone()

    def call(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of the operator of a node for some arguments, in this arithmetic.

        Raises:
            NotEvaluableError: the operator fails.
        """
        function = implementation_of(node.target)
        if self._arithmetic is Arithmetic.EAGER:
            return _checked(node, function, args, kwargs)
        if node.target not in BITS:
            if self._arithmetic is Arithmetic.KERNEL and tensor_float.may_use_tensor_float(node.target, self._device):
                args = [tensor_float.tensor_float_of(argument) for argument in args]
            try:
                return converted(function(*args, **kwargs), self._arithmetic)
            except _failures_of(node.target) as error:
                self.fallbacks[node.target] = first_line(error)
        own_args, own_kwargs = (
            in_own_dtypes(self._graph, node, self._arithmetic, args),
            in_own_dtypes(self._graph, node, self._arithmetic, kwargs),
        )
        return converted(_checked(node, function, own_args, own_kwargs), self._arithmetic)


def _checked(node: Node, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except _failures_of(node.target) as error:
        raise RefusedError(f"{node.target} fails here: {first_line(error)}", error, node.name) from error


def _failures_of(target: str) -> tuple[type[Exception], ...]:
    """The exceptions by which a function says that it cannot compute this; a custom operator may raise any."""
    return TORCH_RAISES if target.split(".")[0] in TORCH_NAMESPACES else (Exception,)


def _rounded(node: Node, value: Any) -> Any:
    """The result of a node, rounded to the dtype that it has in the program."""
    import torch

    if not isinstance(value, torch.Tensor) or len(node.types) != 1 or node.types[0] is None:
        return value
    return value.to(getattr(torch, node.types[0].dtype)).to(value.dtype)
