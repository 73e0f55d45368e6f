"""Explains an exception of the exported program in eager where the package computes. Runs in a child process.

Only an exception about values is a refusal. One about this machine or this torch (no memory, an operator that the
device does not have, a module that is missing) says nothing about the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, RefusedError, first_line, operator_of
from aoti_debug.compare.explain.bad_operand_search import BadOperandSearch
from aoti_debug.compare.explain.element_trace import MOVES, is_elementwise
from aoti_debug.compare.protocol.bad_elements import BadOperand, InputElement, Refusal
from aoti_debug.compare.protocol.measurement import StatesFailure
from aoti_debug.compare.worker.exported_program import ExportedSource
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.recording.values import unravel
from aoti_debug.package.reference.program import Graph, Node, NodeKind, Reference, ValueKey

if TYPE_CHECKING:
    import torch

_OF_THIS_MACHINE = (TypeError, NotImplementedError, MemoryError, ImportError, OSError)
_SAYS_SO = (  # in the texts of errors that torch raises as RuntimeError
    *("not implemented for", "could not run", "not compiled with", "not linked with", "no kernel image"),
    *("out of memory", "can't allocate memory", "cuda error", "internal assert failed"),
    "expected all tensors to be on",
)
_MAX_INPUTS, _MAX_STEPS = 4, 10_000


def refusal_of(source: ExportedSource, error: RefusedError) -> Refusal | StatesFailure:
    """The refusal of the inputs by eager, or why this is none."""
    if not is_about_values(error.raised):
        return StatesFailure(str(error))
    said = error.raised
    if error.node:
        try:
            loaded = source.loaded()
            if loaded is not None:
                for _ in range(error.call + 1):
                    loaded.call()
                return StatesFailure(f"{error}; the program itself, called by torch, does not fail")
        except RefusedError as other:
            if not is_about_values(other.raised):
                return StatesFailure(str(other))
            said = other.raised
        except NotEvaluableError:  # it cannot be loaded; that its operator fails was seen all the same
            pass
    refusal = Refusal(error=type(said).__name__, words=first_line(said), call=error.call)
    exported = source.reference.of_exported
    if not error.node or exported is None or error.node not in exported.graphs[0].by_name:
        return refusal
    operator = exported.graphs[0].by_name[error.node].target
    bad: BadOperand | None = None
    inputs: tuple[InputElement, ...] = ()
    if error.call == 0:
        with contextlib.suppress(NotEvaluableError, RuntimeError, TypeError, ValueError, IndexError):
            bad, inputs = _bad_operand(source, exported, error.node)
    return replace(refusal, node=error.node, operator=operator, bad=bad, inputs=inputs)


def is_about_values(error: BaseException) -> bool:
    """True for an exception by which an operator refuses the values that it is given."""
    import torch

    of_device = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
    if isinstance(error, (*_OF_THIS_MACHINE, *of_device)) or not isinstance(error, Exception):
        return False
    return not any(words in str(error).lower() for words in _SAYS_SO)


def _bad_operand(
    source: ExportedSource, exported: Reference, failing: str
) -> tuple[BadOperand | None, tuple[InputElement, ...]]:
    """The operand's element that the failing operator cannot use, and the elements of inputs that it comes from."""
    import torch

    graph = exported.graphs[0]
    names = graph.sorted(node.name for node in graph.behind(failing))
    with torch.no_grad():
        search = BadOperandSearch(exported, graph, source.given(), Symbols(), source.device)
        bad = search.first("", names[: names.index(failing) + 1])
        if bad is None or bad.node != failing:
            return None, ()
        trace = _InputTrace(graph, search.evaluation)
        return bad, trace.elements(graph.value_for(bad.name, failing), bad.index)


class _InputTrace:
    """Follows an element through operators that compute or move single elements, to inputs and weights."""

    def __init__(self, graph: Graph, evaluation: Evaluation) -> None:
        self._graph = graph
        self._evaluation = evaluation

    def elements(self, key: ValueKey, index: tuple[int, ...]) -> tuple[InputElement, ...]:
        """The elements that one was computed from; () if any of them is not known, or there are many."""
        found: dict[tuple[str, tuple[int, ...]], InputElement] = {}
        waiting, steps = [(key, index)], 0
        while waiting:
            key, index = waiting.pop()
            steps += 1
            node, value = self._graph.by_name[key.after or key.node], self._evaluation.values.get(key)
            if steps > _MAX_STEPS or value is None or len(found) > _MAX_INPUTS:
                return ()
            if node.kind in (NodeKind.INPUT, NodeKind.WEIGHT):
                name = node.target if node.kind is NodeKind.WEIGHT else node.name
                number = _numbered(value)[index] if index else 0
                found[name, index] = InputElement(name, index, int(number), str(value[index].item()))
            elif (operands := self._operands(node, value, index)) is not None:
                waiting += operands
            else:
                return ()
        return tuple(found.values())

    def _operands(
        self, node: Node, value: torch.Tensor, index: tuple[int, ...]
    ) -> list[tuple[ValueKey, tuple[int, ...]]] | None:
        """The elements that an element of an operator's result was made of; None if they cannot be told."""
        if is_elementwise(node):
            return list(self._corresponding(node, index))
        return self._moved(node, index) if node.target.count(".") and node.target.split(".")[1] in MOVES else None

    def _corresponding(self, node: Node, index: tuple[int, ...]) -> Iterator[tuple[ValueKey, tuple[int, ...]]]:
        import torch

        for name in node.inputs:
            key = self._graph.value_for(name, node.name)
            value = self._evaluation.values.get(key)
            if isinstance(value, torch.Tensor):
                own = index[len(index) - value.dim() :]
                yield key, tuple(0 if size == 1 else i for size, i in zip(value.shape, own, strict=True))

    def _moved(self, node: Node, index: tuple[int, ...]) -> list[tuple[ValueKey, tuple[int, ...]]] | None:
        """Calls an operator that moves elements on the numbers of its first argument's elements."""
        import torch

        args, kwargs = self._evaluation.arguments(node)
        if not args or not isinstance(args[0], torch.Tensor) or len(node.inputs) > 1:
            return None
        try:
            numbers: Any = operator_of(node.target)(_numbered(args[0]), *args[1:], **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return None
        if not isinstance(numbers, torch.Tensor):
            return None
        place = unravel(int(numbers[index]), tuple(args[0].shape))
        return [(self._graph.value_for(node.inputs[0], node.name), place)]


def _numbered(value: torch.Tensor) -> torch.Tensor:
    """The row-major numbers of a tensor's elements, in their places."""
    import torch

    return torch.arange(value.numel(), device=value.device).reshape(value.shape)
