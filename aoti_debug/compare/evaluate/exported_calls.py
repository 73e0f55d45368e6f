"""Calls the graph of an exported program as eager does, several times one after the other. Runs in a child process."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

from aoti_debug.compare.evaluate.arguments import converted
from aoti_debug.compare.evaluate.arithmetic import Arithmetic, wide
from aoti_debug.compare.evaluate.drawn_numbers import DrawnNumbers
from aoti_debug.compare.evaluate.evaluation import BITS, TORCH_NAMESPACES, Adjustment, Evaluation
from aoti_debug.compare.evaluate.exact_rules import Inexact, has_rule, inexact
from aoti_debug.compare.evaluate.functions import FILLING, SHARED, NotEvaluableError, RefusedError, operator_of
from aoti_debug.compare.evaluate.rounding_errors import RoundingNoise
from aoti_debug.compare.protocol.request import GivenTensors
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, ValueKey, is_view

if TYPE_CHECKING:
    import torch

Weight = Callable[[Node], "torch.Tensor | None"]
Seen = Callable[[Node, Any], None]
Drawn = Callable[[int], DrawnNumbers]
_INLINED = tuple((str(size),) for size in range(9))  # torch/_inductor/graph.py, can_inline_constant
_MAX_HELD = 1 << 28  # bytes of an argument of a custom operator, which is copied to see if the operator overwrites it


class ExportedCalls:
    """An exported program, and the state that its calls leave.

    Args:
        reference: its graphs (`Reference.of_exported`).
        inputs: the leaves of what it is called with, in order.
        weight: the tensor of a weight, a buffer or a constant; None if it is not known.
        noise: what rounds otherwise, in float64; None for nothing.
        drawn: the random numbers of a call, by its number from 0; None if the program draws none.

    Attributes:
        graph: of the whole program.
        fallbacks: operators without this arithmetic, which the calls computed in their own dtype.
        undeclared: in eager, custom operators by their nodes, and what each did against its schema, as a predicate:
            "overwrites its argument x".
        inexact: in eager, nodes and what is not exact in the first such result of each.
        fills: nodes whose results are fresh memory, and which of two fillings it has: 0 or 1.
        adjust: what makes another result, as right, of a node, its arguments and its result; None to leave them.

    Raises:
        NotEvaluableError: there are too many inputs, or too few.
    """

    def __init__(
        self,
        reference: Reference,
        arithmetic: Arithmetic,
        device: str,
        inputs: Sequence[Any],
        weight: Weight,
        noise: RoundingNoise | None = None,
        drawn: Drawn | None = None,
    ) -> None:
        self._noise = noise
        self._drawn = drawn
        self._calls = 0
        self._reference = reference
        self.graph = reference.graphs[0]
        self._arithmetic = arithmetic
        self._device = device
        self._weight = weight
        names = [node.name for node in self._nodes(NodeKind.INPUT)]
        if len(names) != len(inputs):
            raise NotEvaluableError(f"it takes {len(names)} inputs, and {len(inputs)} were recorded")
        self._inputs = dict(zip(names, inputs, strict=True))
        self.fallbacks: set[str] = set()
        self.undeclared: dict[str, str] = {}
        self.inexact: dict[str, Inexact] = {}
        self.fills: Mapping[str, int] = {}
        self.adjust: Adjustment | None = None
        self._replaced: dict[str, torch.Tensor] = {}
        self._kept = frozenset(_overwritten(self.graph))
        self._last_readers = self.graph.last_readers(node.name for node in self.graph.nodes)

    def call(self, seen: Seen | None = None) -> list[Any]:
        """Calls it once; returns what the user gets: tensors, and other values.

        Args:
            seen: called with each node of the whole graph that a value was computed for, and this value; of a node that
                overwrites a part of an input, a weight or another tensor also with the whole of it.

        Raises:
            RefusedError: an operator raises an exception.
            NotEvaluableError: an operator cannot be called here, or a weight or an input is not known.
        """
        import torch

        evaluation = InPlaceEvaluation(
            self._reference, self.graph, self._arithmetic, self._device, adjust=self.adjust, noise=self._noise
        )
        evaluation.drawn = None if self._drawn is None else self._drawn(self._calls)
        evaluation.fills = self.fills
        self._calls += 1
        *nodes, output = self.graph.nodes
        with torch.no_grad(), _vmaps_left_again():
            for node in nodes:
                if node.kind is not NodeKind.CALL:
                    continue
                self._load(evaluation, node)
                evaluation.run(node)
                if node.name in evaluation.failures:
                    raise _failure(evaluation, node, self._calls - 1)
                if seen is not None:
                    seen(node, evaluation.values[ValueKey(node.name)])
                    for whole in (base_name(self.graph, name) for name in node.mutates):
                        seen(node, evaluation.values.get(ValueKey(whole)))
                evaluation.values.drop(self._last_readers.get(node.name, frozenset()) - self._kept)
            self._load(evaluation, output)
            (returned,), replaced = evaluation.arguments(output)
        if evaluation.drawn is not None:
            evaluation.drawn.require_all_taken()
        self._keep(evaluation, replaced)
        self.fallbacks.update(evaluation.fallbacks)
        self.undeclared.update(evaluation.undeclared)
        self.inexact = evaluation.inexact | self.inexact
        return list(returned)

    def state(self, name: str) -> torch.Tensor | None:
        """A weight or a buffer after the last call, by its name; None if it is not known."""
        if name in self._replaced:
            return self._replaced[name]
        node = next((node for node in self._nodes(NodeKind.WEIGHT) if node.target == name), None)
        return None if node is None else self._weight(node)

    def input(self, number: int) -> torch.Tensor | None:
        """An input after the last call, by its number from 0; None if it is not known, or no tensor."""
        import torch

        value = list(self._inputs.values())[number] if number < len(self._inputs) else None
        return value if isinstance(value, torch.Tensor) else None

    @cached_property
    def overwritten(self) -> GivenTensors:
        """The weights, buffers and inputs that a call may overwrite or replace."""
        inputs = list(self._inputs)
        *_, output = self.graph.nodes
        names = {*self._kept, *output.kwargs}
        kept = {self.graph.by_name[name].target for name in self._kept - set(inputs)}
        return GivenTensors(
            tuple(sorted(kept | output.kwargs.keys() - set(inputs))),
            tuple(number for number, name in enumerate(inputs) if name in names),
        )

    def _nodes(self, kind: NodeKind) -> Iterator[Node]:
        return (node for node in self.graph.nodes if node.kind is kind)

    def _load(self, evaluation: Evaluation, reader: Node) -> None:
        """Sets the inputs and weights that a node reads, when it is the first one that does."""
        import torch

        for name in reader.inputs:
            node = self.graph.by_name[name]
            if node.kind not in (NodeKind.INPUT, NodeKind.WEIGHT) or ValueKey(name) in evaluation.values:
                continue
            value = self._inputs.get(name) if node.kind is NodeKind.INPUT else self.state(node.target)
            if value is None:
                if node.kind is NodeKind.WEIGHT:
                    raise NotEvaluableError(f"the weight {node.target or name} is not known: {_unknown(node)}")
                raise NotEvaluableError(f"the {node.kind.value} {node.target or name} is not known")
            held = value.to(self._device) if isinstance(value, torch.Tensor) else value
            if name in self._kept:
                own = held.clone()
                if self._noise is not None and self._calls == 1:  # what earlier calls left is moved already
                    own = wide(self._noise.begun(own))
                evaluation.values[ValueKey(name)] = converted(own, self._arithmetic)
            else:
                evaluation.set(ValueKey(name), held)

    def _keep(self, evaluation: Evaluation, replaced: dict[str, Any]) -> None:
        """Keeps what the call has overwritten or replaced, for the next one."""
        for name in self._kept:
            value, node = evaluation.values.get(ValueKey(name)), self.graph.by_name[name]
            if value is None:
                continue
            if node.kind is NodeKind.INPUT:
                self._inputs[name] = value
            else:
                self._replaced[node.target] = value
        for name, value in replaced.items():
            (self._inputs if name in self._inputs else self._replaced)[name] = value


def _unknown(node: Node) -> str:
    """Why a weight may not be known."""
    (type_,) = node.types
    if type_ is not None and type_.shape in ((), *_INLINED) and node.initial is None:
        return "torch may have written its few elements into the kernels; --exported gives the program that has them"
    return "the run has not recorded all of it"


class InPlaceEvaluation(Evaluation):
    """An evaluation in which nodes overwrite tensors themselves, so that views of them change too.

    Attributes:
        drawn: the random numbers that it draws; None if it draws none.
        fills, undeclared, inexact: as of `ExportedCalls`.
    """

    drawn: DrawnNumbers | None = None
    fills: Mapping[str, int] = MappingProxyType({})

    @cached_property
    def undeclared(self) -> dict[str, str]:
        """The custom operators, by their nodes, and what each did against its schema, as a predicate."""
        return {}

    @cached_property
    def inexact(self) -> dict[str, Inexact]:
        """The nodes, and what is not exact in their results."""
        return {}

    def draw(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The numbers that the run drew.

        Raises:
            NotEvaluableError: they are not known, and the operator takes its arguments.
        """
        if self.drawn is None:
            return super().draw(node, args, kwargs)
        try:
            return self.drawn.result(node, args, kwargs)
        except NotEvaluableError:
            if self._arithmetic is Arithmetic.EAGER:
                self.call(node, args, kwargs)  # draws others, or refuses its arguments
            raise

    def to_overwrite(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor that a node overwrites: the value itself, so that its views change too."""
        return value

    def call(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operator; one that copies in the program does not return its argument.

        Raises:
            NotEvaluableError: the operator fails, or would overwrite a copy.
        """
        if self._arithmetic is Arithmetic.EAGER:
            return self._watched(node, args, kwargs)
        result = super().call(node, args, kwargs)
        if node.target in BITS and self._graph.mutators.get(node.name):
            raise NotEvaluableError(f"what {node.target} returns is overwritten, and how numbers are stored matters")
        if node.mutates and node.target in self.fallbacks:
            raise NotEvaluableError(f"{node.target} overwrites its arguments, and has no arithmetic but its own")
        is_cast = self._is_cast(node) and any(_is_part(result, argument) for argument in args)
        return result.clone() if is_cast else result

    def _watched(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operator in eager, with what is asked for in fresh memory, and what it overwrites noted."""
        is_custom = node.target.split(".")[0] not in TORCH_NAMESPACES
        held = _held_arguments(operator_of(node.target), args, kwargs) if is_custom else {}
        is_ruled = has_rule(node.target) and node.name not in self.inexact
        before = _copied(args) if is_ruled and node.mutates else args
        result = super().call(node, args, kwargs)
        found = inexact(node.target, before, kwargs, result) if is_ruled else None
        if found is not None:
            self.inexact[node.name] = found
        changed = (name for name, (tensor, before) in held.items() if not _has_same_bytes(tensor, before))
        returned = (name for name, (tensor, _) in held.items() if _is_returned(tensor, result, node.target))
        done = [*(f"overwrites its argument {name}" for name in changed), *map(_RETURNS.format, returned)]
        if done:
            self.undeclared.setdefault(node.name, done[0])
        if node.name in self.fills:
            _fill(result, self.fills[node.name])
        return result

    def overwrite_shared(self, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """In eager, what eager does, which is noted if the order of its work matters; otherwise as any evaluation."""
        if self._arithmetic is not Arithmetic.EAGER:
            return super().overwrite_shared(node, args, kwargs)
        if node.target not in FILLING:
            self.inexact[node.name] = Inexact(f"overwrites {SHARED}, which torch leaves open", is_open=True)
        return self.call(node, args, kwargs)

    def _is_cast(self, node: Node) -> bool:
        """True if a node's result has another dtype in the program than the tensor that it is made of."""
        own = [type_.dtype for type_ in node.types if type_ is not None]
        read = [type_ for name in node.inputs[:1] for type_ in self._graph.by_name[name].types]
        return len(own) == len(read) == 1 and read[0] is not None and read[0].dtype != own[0]


def _copied(args: Sequence[Any]) -> list[Any]:
    """The arguments, with copies of integer tensors, which an operator may overwrite and rules read afterwards."""
    return [item.clone() if _can_be_held(item) and not _is_rounded(item) else item for item in args]


def _is_rounded(tensor: torch.Tensor) -> bool:
    return bool(tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def _held_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The tensors that an operator's schema does not let it overwrite, with copies, by their names there."""
    schema = getattr(function, "_schema", None)
    if schema is None:
        return {}
    given = {**dict(zip((argument.name for argument in schema.arguments), args, strict=False)), **kwargs}
    held: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for argument in schema.arguments:
        value = given.get(argument.name)
        may_change = argument.alias_info is not None and argument.alias_info.is_write
        if not may_change and _can_be_held(value):
            held[argument.name] = value, value.clone()
    return held


def _can_be_held(value: Any) -> TypeGuard[torch.Tensor]:
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        return False
    return value.nbytes <= _MAX_HELD and not torch._C._functorch.is_functorch_wrapped_tensor(value)


_RETURNS = "returns memory of its argument {}"


def _is_returned(argument: torch.Tensor, result: Any, target: str) -> bool:
    """True if a result has memory of an argument, and the operator's schema declares it to have its own."""
    import torch
    from torch.utils import _pytree as pytree

    schema = getattr(operator_of(target), "_schema", None)
    if schema is None or any(given.alias_info is not None for given in schema.returns) or not argument.nbytes:
        return False
    memory = argument.untyped_storage().data_ptr()
    leaves = pytree.tree_leaves(result)
    strided = (x for x in leaves if isinstance(x, torch.Tensor) and x.layout == torch.strided and x.nbytes)
    return any(tensor.untyped_storage().data_ptr() == memory for tensor in strided)


def _has_same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    import torch

    flat = [tensor.resolve_conj().resolve_neg().contiguous().reshape(-1) for tensor in (first, second)]
    return bool(torch.equal(*(tensor.view(torch.uint8) for tensor in flat)))


def _fill(tensor: torch.Tensor, which: int) -> None:
    """Fills fresh memory: 0 with ones, or zeros of integers; 1 with NaN, or ones of integers."""
    tensor.fill_((1.0, math.nan)[which] if _is_rounded(tensor) else which)


def _failure(evaluation: Evaluation, node: Node, call: int) -> NotEvaluableError:
    text, raised = evaluation.failures[node.name], evaluation.raised.get(node.name)
    return NotEvaluableError(text) if raised is None else RefusedError(text, raised, node.name, call)


def _is_part(result: Any, argument: Any) -> bool:
    """True if two values are tensors in the same memory; also within torch.vmap, where tensors hide their memory."""
    import torch

    both = isinstance(result, torch.Tensor) and isinstance(argument, torch.Tensor)
    if both and any(map(torch._C._functorch.is_functorch_wrapped_tensor, (result, argument))):
        return True
    return both and result.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr()


@contextlib.contextmanager
def _vmaps_left_again() -> Iterator[None]:
    """Leaves, however the `with` ends, the levels of torch.vmap that were entered in it: some programs enter them."""
    from torch._C import _functorch as functorch

    level = functorch.maybe_current_level()
    try:
        yield
    finally:
        while functorch.maybe_current_level() != level:
            functorch._vmap_decrement_nesting()


def base_name(graph: Graph, name: str) -> str:
    """The node whose tensor a node's result is a view of, through any views; the node itself if it is none."""
    while is_view(graph.by_name[name]):
        name = graph.by_name[name].inputs[0]
    return name


def _overwritten(graph: Graph) -> Iterator[str]:
    """The inputs and weights that nodes may overwrite, directly or through views."""
    for node in graph.nodes:
        for name in node.mutates:
            base = graph.by_name[name]
            while base.kind is NodeKind.CALL and base.inputs:
                base = graph.by_name[base.inputs[0]]  # the tensor that a view is of comes first
            if base.kind in (NodeKind.INPUT, NodeKind.WEIGHT):
                yield base.name
