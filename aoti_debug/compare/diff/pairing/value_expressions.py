"""Names values of a graph by the expression that computes them: the same in any lowering of one program.

The name of a value is a digest of its operator and of the names of its arguments; inputs are named by their position
and weights by their attribute. Devices are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from aoti_debug.package.reference.program import Graph, NodeKind, ValueKey


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
