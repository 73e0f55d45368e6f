"""Tells if two launches compute what they write by the same expression of what both runs have recorded."""

from __future__ import annotations

from collections.abc import Mapping

from aoti_debug.compare.diff.pairing.pair import LaunchPair, Pairing, TensorPair
from aoti_debug.compare.diff.pairing.recorded_tensor import RecordedTensor
from aoti_debug.compare.diff.pairing.value_expressions import Expressions
from aoti_debug.compare.regions.recorded_values import RecordedValues
from aoti_debug.package.reference.program import Graph, ValueKey
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey

_Graph = tuple[str, str]


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
