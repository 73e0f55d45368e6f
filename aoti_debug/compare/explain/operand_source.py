"""Follows a bad element of an operand back through the graph to the recorded value that it comes from.

Runs in a child process. The graph is evaluated with other numbers in place of recorded ones: see culprit.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.explain.culprit import TimeOverError, UndecidedError, find_culprit
from aoti_debug.compare.protocol.messages import BadSource
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, NodeKind, Reference, ValueKey

if TYPE_CHECKING:
    import torch

_MAX_SECONDS = 20.0  # of trials


@dataclass(frozen=True)
class BadElement:
    """An element of a value that an operator cannot use.

    Attributes:
        element: row-major.
        value: what it is.
        bad: True for each element of such a value that is as unusable.
    """

    key: ValueKey
    element: int
    value: int
    bad: Callable[[torch.Tensor], torch.Tensor]


class OperandSource:
    """Evaluates the part of a graph that an operand was computed by, from recorded values."""

    def __init__(self, reference: Reference, graph: Graph, symbols: Symbols, device: str) -> None:
        self._reference = reference
        self._graph = graph
        self._symbols = symbols
        self._device = device

    def find(self, of: BadElement, *starts: Mapping[ValueKey, torch.Tensor]) -> BadSource | None:
        """The element that a bad one comes from; None if that cannot be told.

        Args:
            starts: recorded values, those first that reach further back: the first that gives the bad element counts.
        """
        for recorded in starts:
            found = self._from(of, recorded)
            if found is not None:
                return found
        return None

    def _from(self, of: BadElement, recorded: Mapping[ValueKey, torch.Tensor]) -> BadSource | None:
        nodes, leaves = self._part(of.key, recorded)
        if of.key in leaves:
            index = unravel(of.element, tuple(leaves[of.key].shape))
            return BadSource(
                node=str(of.key), element=of.element, index=index, value=str(of.value), instead="", alone=True
            )
        deadline = time.monotonic() + _MAX_SECONDS

        def is_bad(changes: Mapping[str, torch.Tensor]) -> bool:
            value = self._value(of.key, nodes, leaves, changes, deadline)
            return bool(of.bad(value).reshape(-1)[of.element])

        try:
            whole = self._value(of.key, nodes, leaves, {}, deadline)
            if int(whole.reshape(-1)[of.element]) != of.value:
                return None
            culprit = find_culprit({str(key): value for key, value in leaves.items()}, is_bad, str(of.value))
        except (UndecidedError, TimeOverError):
            return None
        if culprit is None:
            return None
        shape = next(tuple(value.shape) for key, value in leaves.items() if str(key) == culprit.name)
        index = () if culprit.element is None else unravel(culprit.element, shape)
        return BadSource(
            node=culprit.name,
            element=culprit.element,
            index=index,
            value=culprit.value,
            instead=culprit.instead,
            alone=culprit.alone,
        )

    def _part(
        self, target: ValueKey, recorded: Mapping[ValueKey, torch.Tensor]
    ) -> tuple[tuple[str, ...], dict[ValueKey, torch.Tensor]]:
        """The nodes between recorded values and a target, as far back as these reach, and those values."""
        reachable = self._reachable(recorded)
        nodes: set[str] = set()
        leaves: dict[ValueKey, torch.Tensor] = {}
        pending = [target]
        while pending:
            key = pending.pop()
            name = key.after or key.node
            if name in nodes or key in leaves:
                continue
            node = self._graph.by_name[name]
            is_call = node.kind is NodeKind.CALL
            if key in recorded and not (is_call and name in reachable):
                leaves[key] = recorded[key]
                continue
            nodes.add(name)
            if is_call:
                pending += [self._graph.value_for(item, name) for item in node.inputs]
        return self._graph.sorted(nodes), leaves

    def _reachable(self, recorded: Mapping[ValueKey, torch.Tensor]) -> set[str]:
        """The nodes that can be evaluated from the recorded inputs and weights."""
        found: set[str] = set()
        for node in self._graph.nodes:
            if node.kind is NodeKind.CALL:
                keys = [self._graph.value_for(item, node.name) for item in node.inputs]
                holds = bool(node.size) or all((key.after or key.node) in found for key in keys)
            else:
                given = ValueKey(node.name) in recorded or node.value is not None or node.is_empty or bool(node.size)
                holds = given or node.kind is NodeKind.SUBGRAPH
            if holds:
                found.add(node.name)
        return found

    def _value(
        self,
        target: ValueKey,
        nodes: tuple[str, ...],
        leaves: Mapping[ValueKey, torch.Tensor],
        changes: Mapping[str, torch.Tensor],
        deadline: float,
    ) -> torch.Tensor:
        """The value of the target with some leaves changed.

        Raises:
            UndecidedError: it cannot be evaluated.
            TimeOverError: the trials take too long.
        """
        evaluation = Evaluation(self._reference, self._graph, Arithmetic.EAGER, self._device)
        for key, value in leaves.items():
            evaluation.set(key, changes.get(str(key), value))
        for name in nodes:
            if time.monotonic() > deadline:
                raise TimeOverError("the trials take too long")
            node = self._graph.by_name[name]
            if node.kind is not NodeKind.SUBGRAPH:
                evaluation.run(node, self._symbols.value(node.size) if node.size else None)
        try:
            result: torch.Tensor = evaluation.value(target)
        except NotEvaluableError as error:
            raise UndecidedError(str(error)) from error
        return result
