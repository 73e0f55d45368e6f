"""Completes the values of a kernel's statements from its results backwards."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.runs.kernel_source.statements import Statement
from aoti_debug.views.kernel_code.expression_values import CodeValue
from aoti_debug.views.kernel_code.graph_values import GraphValues


def adds_to_its_target(statement: Statement) -> bool:
    """True for a step of a reduction: `acc = acc + x`, `_acc = tl.where(mask, x + _acc_next, _acc)`."""
    names = {_accumulator(name) for name in statement.names}
    return not statement.store and any(_accumulator(target) in names for target in statement.targets)


def _accumulator(name: str) -> str:
    return name.lstrip("_").removesuffix("_next").removesuffix("_vec")


def backwards(
    code: Sequence[Statement], values: Sequence[CodeValue], graph: GraphValues, own: frozenset[str]
) -> list[CodeValue]:
    """The values of the statements; those that are not known are what a later statement needs, where only one fits.

    Args:
        values: of each statement, as far as known from what it loads.
        own: the nodes that the launch computes.
    """
    return _Backwards(graph, own).all(code, values)


class _Backwards:
    def __init__(self, graph: GraphValues, own: frozenset[str]) -> None:
        self._graph = graph
        self._own = own
        self._wanted: dict[str, CodeValue] = {}  # by variable or pointer: what the statements below take it for
        self._confirmed: set[str] = set()  # variables whose value a statement below reads as it is known

    def all(self, code: Sequence[Statement], values: Sequence[CodeValue]) -> list[CodeValue]:
        found = list(values)
        known: dict[str, CodeValue] = {}
        operands: list[dict[str, CodeValue]] = []
        for statement, value in zip(code, values, strict=True):
            operands.append({name: known[name] for name in statement.names if name in known})
            known |= dict.fromkeys(statement.targets, value)
        for number in reversed(range(len(code))):
            statement = code[number]
            found[number] = self._completed(statement, found[number])
            self._ask(statement, found[number], operands[number])
        return found

    def _completed(self, statement: Statement, value: CodeValue) -> CodeValue:
        """The value of a statement, with what is wanted of its targets."""
        wanted = [self._wanted[target] for target in statement.targets if target in self._wanted]
        is_confirmed = any(target in self._confirmed for target in statement.targets)
        if not adds_to_its_target(statement):
            for target in statement.targets:
                self._wanted.pop(target, None)
                self._confirmed.discard(target)
        if not wanted or value.is_number:
            return value
        if both := (value.nodes | value.part_of) & wanted[0].nodes:
            return CodeValue(both)
        is_unclear = value.is_unknown or len(value.nodes or value.part_of) > 1
        if is_unclear or (not is_confirmed and self._contradicts(value, wanted[0])):
            return wanted[0]
        return value

    def _contradicts(self, value: CodeValue, wanted: CodeValue) -> bool:
        """True if an intermediate result is wanted, and the value is none of the nodes that lead to it."""
        if not wanted.part_of:
            return False
        leading = frozenset().union(*(self._graph.ancestors(name) for name in wanted.part_of))
        return bool(value.nodes) and not value.nodes & leading

    def _ask(self, statement: Statement, value: CodeValue, operands: dict[str, CodeValue]) -> None:
        """Notes what the operands of a statement must be."""
        names = [name for name, operand in operands.items() if not operand.is_number and name not in statement.targets]
        if value.part_of:
            self._want(dict.fromkeys(names, CodeValue(part_of=value.part_of)), operands)
            return
        if len(value.nodes) != 1:
            return
        (node,) = value.nodes
        if any(operands[name].nodes == value.nodes for name in names):
            self._confirmed |= {name for name in names if operands[name].nodes == value.nodes}
            return
        if node not in self._own and self._graph.computed(node) not in self._own:
            return
        call = self._graph.computed(node)
        if self._graph.reduces(call):
            self._want(dict.fromkeys(names, CodeValue(part_of=frozenset({call}))), operands)
            return
        if _passes_on(statement):
            self._want(dict.fromkeys(names, value), operands)
            return
        inputs = self._graph.inputs(node)
        covering = [name for name in names if operands[name].nodes & inputs]
        self._confirmed |= set(covering)
        self._want({name: CodeValue(operands[name].nodes & inputs) for name in covering}, operands)
        covered = frozenset().union(*(operands[name].nodes for name in covering))
        rest = [name for name in names if name not in covering]
        if len(rest) == 1 and len(inputs - covered) == 1:
            self._want({rest[0]: CodeValue(inputs - covered)}, operands)

    def _want(self, wanted: dict[str, CodeValue], operands: dict[str, CodeValue]) -> None:
        for name, value in wanted.items():
            if len(operands[name].nodes) != 1 or value.part_of:
                self._wanted.setdefault(name, value)


def _passes_on(statement: Statement) -> bool:
    """True if a statement only moves a value: a store of a variable, a conversion, a load."""
    return statement.value in statement.names or statement.value.startswith(("same(", "to_", "load(", "tl.load("))
