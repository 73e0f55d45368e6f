"""Names values by the expressions that compute them, and tells whether two launches compute the same ones.

The name of a value is a digest of its operator and of the names of its arguments: the same in any lowering of one
program. Inputs are named by their position and weights by their attribute. Devices are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from aoti_debug.compare.diff.pairs import LaunchPair, Pairing, RecordedTensor, TensorPair
from aoti_debug.compare.regions.recorded_values import RecordedValues
from aoti_debug.package.reference.program import Graph, NodeKind, ValueKey
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey

_Graph = tuple[str, str]


class Expressions:
    """The expressions of the values of one graph.

    Args:
        known: names of values that are not expanded where other values are computed from them.
    """

    def __init__(self, graph: Graph, known: Mapping[ValueKey, str] | None = None) -> None:
        self._expressions: dict[ValueKey, str] = {}
        self._names: dict[ValueKey, str] = dict(known or {})
        inputs, met = 0, Counter[str]()
        for node in graph.nodes:
            if node.kind is NodeKind.INPUT:
                name, inputs = f"input {inputs}", inputs + 1
            elif node.kind in (NodeKind.WEIGHT, NodeKind.SUBGRAPH):
                name = f"{node.kind.value} {node.target}"
            else:  # of equal calls, such as two of random numbers, each has a name of its own
                read = {read: self._names[graph.value_for(read, node.name)] for read in node.inputs}
                name = _digest([node.target, _named(list(node.args), read), _named(dict(node.kwargs), read)])
                met[name] += 1
                name = name if met[name] == 1 else _digest([name, met[name]])
            self._add(ValueKey(node.name), name)
            for position, overwritten in enumerate(node.mutates):
                before = self._names[graph.value_for(overwritten, node.name)]
                self._add(ValueKey(overwritten, node.name), _digest([name, before, position]))

    def of(self, value: ValueKey) -> str:
        """The name of a value's expression."""
        return self._expressions[value]

    def _add(self, value: ValueKey, expression: str) -> None:
        self._expressions[value] = expression
        self._names.setdefault(value, expression)


def _named(value: Any, names: Mapping[str, str]) -> Any:
    """An argument with the expressions of nodes in place of their names."""
    if isinstance(value, list | tuple):
        return [_named(item, names) for item in value]
    if not isinstance(value, Mapping):
        return value
    if isinstance(node := value.get("node"), str):
        return {"expression": names[node]}
    return {key: _named(item, names) for key, item in value.items() if key != "device"}


def _digest(parts: list[Any]) -> str:
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


class SameExpressions:
    """The pairs whose values are computed by the same expression.

    A value that both runs have stored has one name in both: what is computed from it is looked at apart from the way in
    which it was itself computed.

    Args:
        a, b: the values of the two runs.
    """

    def __init__(self, pairing: Pairing, a: RecordedValues, b: RecordedValues) -> None:
        self._a, self._b = _Side(a), _Side(b)
        for pair in pairing.pairs:
            for number, write in enumerate(pair.writes):
                name = f"{pair.launch.id} {number}"
                self._a.give(write.a, name)
                self._b.give(write.b, name)

    def of(self, pair: LaunchPair) -> bool:
        """True if all that a pair wrote is computed by the same expressions; False also where that is not known.

        What no node of either graph holds, such as partial sums, is looked at where it is read.
        """
        return all(map(self._is_same, pair.writes))

    def _is_same(self, write: TensorPair) -> bool:
        first, second = self._a.expression(write.a), self._b.expression(write.b)
        return first == second


class _Side:
    """The values of one run."""

    def __init__(self, values: RecordedValues) -> None:
        self._values = values
        self._written: Mapping[tuple[LaunchKey, str], ValueKey | None] = {
            (key, write.argument.name): write.value for key, writes in values.writes.items() for write in writes
        }
        self._known: dict[_Graph, dict[ValueKey, str]] = {}
        self._expressions: dict[_Graph, Expressions] = {}

    def give(self, tensor: RecordedTensor, name: str) -> None:
        """Gives the value that a launch wrote a name; the first one counts."""
        graph, value = self._place(tensor)
        if graph is not None and value is not None:
            self._known.setdefault((graph.name, graph.function), {}).setdefault(value, name)

    def expression(self, tensor: RecordedTensor) -> str | None:
        """The expression of what a launch wrote; None if no node of its graph holds it."""
        graph, value = self._place(tensor)
        if graph is None or value is None:
            return None
        key = graph.name, graph.function
        if key not in self._expressions:
            self._expressions[key] = Expressions(graph, self._known.get(key))
        return self._expressions[key].of(value)

    def _place(self, tensor: RecordedTensor) -> tuple[Graph | None, ValueKey | None]:
        launch = tensor.launch
        return self._values.graph(launch), self._written.get((launch.key, tensor.argument.name))
