"""Follows a non-finite element back through the nodes of a region, to the operator that made it. Runs in a child."""

from __future__ import annotations

import math

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.explain.element_sources import ElementPlace, ElementSource, sources_of, value_at
from aoti_debug.compare.protocol.origin import Made, Operand
from aoti_debug.package.recording.values import unravel
from aoti_debug.package.reference.program import Graph, Node, NodeKind, Reference, ValueKey


class ElementTrace:
    """The way of one element through evaluated nodes."""

    def __init__(self, reference: Reference, graph: Graph, evaluation: Evaluation, device: str) -> None:
        self._reference = reference
        self._graph = graph
        self._evaluation = evaluation
        self._device = device

    def origin(self, key: ValueKey, element: int) -> tuple[Made, Made | None] | None:
        """The number that a non-finite element comes from, and the NaN that it became; None if it came in."""
        nan = self._producer(ElementPlace(key, -1, element))
        if nan is None:
            return None
        place, sources = nan
        made = self._made(place, sources)
        for source in sources:
            infinite = source.numbers.isinf() if made.value == "nan" else None
            if infinite is None or not bool(infinite.any()):
                continue
            earlier = self._producer(source.first(infinite))
            if earlier is not None and not self._is_meant(earlier[0]):
                return self._made(*earlier), made
        return made, None

    def _producer(self, place: ElementPlace) -> tuple[ElementPlace, tuple[ElementSource, ...]] | None:
        """The place where a value like this one came about first, and what it was computed from."""
        while True:
            node = self._node(place.key)
            if node is None or node.kind is not NodeKind.CALL:
                return None
            if node.is_member:
                producer = self._graph.value_for(node.inputs[0], node.name)
                place = ElementPlace(producer, int(node.args[1]), place.element)
                continue
            sources = tuple(sources_of(self._graph, self._evaluation, node, place))
            number = float(value_at(self._evaluation, place).reshape(-1)[place.element])
            step = next((s for s in (_step(source, number) for source in sources) if s is not None), None)
            if step is None:
                return place, sources
            place = step

    def _node(self, key: ValueKey) -> Node | None:
        """The node that computed a value in this region."""
        name = key.after or key.node
        return self._graph.by_name[name] if ValueKey(name) in self._evaluation.values else None

    def _is_meant(self, place: ElementPlace) -> bool:
        """True if an infinity is written in the program: a mask, a fill value."""
        node = self._node(place.key)
        if node is None or not any(True for _ in sources_of(self._graph, self._evaluation, node, place)):
            return True
        numbers = [a["float"] for a in (*node.args, *node.kwargs.values()) if isinstance(a, dict) and "float" in a]
        return any("inf" in number for number in numbers)

    def _made(self, place: ElementPlace, sources: tuple[ElementSource, ...]) -> Made:
        node = self._node(place.key)
        assert node is not None
        result = value_at(self._evaluation, place)
        by_name = {source.name: source for source in sources}
        operands: list[Operand] = []
        for argument in node.args:
            if isinstance(argument, dict) and argument.get("node") in by_name:
                operands.append(_operand(by_name[str(argument["node"])]))
            elif isinstance(argument, int | float) and not isinstance(argument, bool):
                operands.append(Operand("", value=str(float(argument))))
        return Made(
            node=node.name,
            operator=node.target,
            dtype=str(result.dtype).removeprefix("torch."),
            index=unravel(place.element, tuple(result.shape)),
            value=str(float(result.reshape(-1)[place.element])),
            exact=self._exact(node, place),
            operands=tuple(operands),
            reduces=any(operand.count > 1 for operand in operands),
        )

    def _exact(self, node: Node, place: ElementPlace) -> str:
        """The result for the same operands in float64; "nan" where the operator has none."""
        double = Evaluation(self._reference, self._graph, Arithmetic.DOUBLE, self._device)
        for name in node.inputs:
            key = self._graph.value_for(name, node.name)
            if key in self._evaluation.values:
                double.set(key, self._evaluation.values[key])
        double.run(node)
        try:
            value = double.value(ValueKey(node.name))
        except NotEvaluableError:
            return "nan"
        result = value[place.part] if place.part >= 0 else value
        return str(float(result.reshape(-1)[place.element]))


def _step(source: ElementSource, number: float) -> ElementPlace | None:
    """The element of an argument that explains a number: NaN explains NaN, anything non-finite an infinity."""
    numbers = source.numbers
    which = numbers.isnan() if math.isnan(number) else ~numbers.isfinite()
    return source.first(which) if bool(which.any()) else None


def _operand(source: ElementSource) -> Operand:
    numbers = source.numbers
    count = int(numbers.numel())
    if count == 1:
        index = unravel(int(source.elements[0]), tuple(source.value.shape))
        return Operand(source.name, index, str(float(numbers[0])))
    infinite = numbers.isinf()
    return Operand(
        source.name,
        count=count,
        zeros=int((numbers == 0).sum()),
        plus_infinities=int((infinite & (numbers > 0)).sum()),
        minus_infinities=int((infinite & (numbers < 0)).sum()),
    )
