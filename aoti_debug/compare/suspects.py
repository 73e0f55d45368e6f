"""The operators behind wrong numbers.

Those that may have been computed wrongly in a wrong launch, and those that Inductor's decompositions and passes have
lost from an exported program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from aoti_debug.base import dtypes, wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.exported_calls import base_name
from aoti_debug.compare.measure.verdicts import LaunchVerdict, verdict_on_output
from aoti_debug.compare.protocol.measurement import (
    EXPLAINED,
    LARGEST,
    LEAST,
    Advance,
    AlteredOutput,
    AlteredProgram,
    RegionResult,
    StateChange,
)
from aoti_debug.compare.protocol.request import Region
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.node_text import node_text, place_in_subgraph
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference


@dataclass(frozen=True, kw_only=True)
class SeenOperator:
    """An operator of the exported program, and what was seen of it in eager.

    Attributes:
        node: of the exported program's graph.
        seen: as a predicate of the operator: "overwrites its argument x, which its schema does not declare".
    """

    node: str
    operator: str
    seen: str
    line: ModelLine | None = None

    @property
    def text(self) -> str:
        """ "mylib::op.default (op) at model.py:7 overwrites its argument x, which its schema does not declare"."""
        at = "" if self.line is None else f" at {self.line.place}"
        return f"{self.operator} ({self.node}){at} {self.seen}"


@dataclass(frozen=True, kw_only=True)
class OverwritingOperator(SeenOperator):
    """An operator that overwrites a state or an input, or computes what replaces it.

    Attributes:
        state: its name, as of a StateChange; "" if an older comparison does not tell.
    """

    state: str = ""


@dataclass(frozen=True, kw_only=True)
class UndefinedOperator(SeenOperator):
    """An operator that does what its graph does not say.

    Attributes:
        outputs: the numbers of the outputs that were seen to depend on it; () where that was not tried.
    """

    outputs: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InexactOperator(SeenOperator):
    """An operator whose result in eager is not the exact one of its operands.

    Attributes:
        is_open: the exact result is another one, or there is none: that the package has eager's proves nothing.
    """

    is_open: bool = False


@dataclass(frozen=True)
class LostOperator:
    """An operator of the exported program whose value the graph that kernels were generated from lacks.

    Attributes:
        text: the node: "tanh = aten.tanh.default(linear)".
        line: of the model; None if it is unknown.
        only_signs: the graph has the value but for the signs of zeros.
        only_order: the graph has the numbers of the value, but not in their order.
        overwrites: what the node overwrites, or a view of it: "x"; "" for nothing.
    """

    node: str
    operator: str
    text: str
    line: ModelLine | None
    only_signs: bool = False
    only_order: bool = False
    overwrites: str = ""

    @property
    def sentence(self) -> str:
        """ "it has no value like that of tanh = aten.tanh.default(x) at model.py:7: the change may begin there"."""
        place = f" at {self.line.place}" if self.line is not None else ""
        if self.is_held:
            how = "with other signs of zeros" if self.only_signs else "in another order"
            return f"it has the numbers of {self.text}{place} only {how}: the change may begin there"
        after = f"{self.overwrites} after " if self.overwrites else ""
        return f"it has no value like that of {after}{self.text}{place}: the change may begin there"

    @property
    def is_held(self) -> bool:
        """True if the graph has the value's numbers in some way."""
        return self.only_signs or self.only_order


@dataclass(frozen=True)
class Alteration:
    """The difference of a program before and after Inductor's decompositions and passes.

    Attributes:
        relative: the largest relative difference of an output, both computed in float64; -1 if it is not known.
        explained: the largest part of an output's error that this difference makes up.
        least: the relative difference from which on rounding does not explain it.
        is_rounded: True if an operator has no float64, or integers differ by 1 at most.
        lost: the operators whose values are lost first, on the way to the wrong outputs.
        kept: the operators whose results wrong outputs should be, and whose values are still computed.
    """

    relative: float
    explained: float = 1.0
    least: float = LEAST
    is_rounded: bool = False
    lost: tuple[LostOperator, ...] = ()
    kept: tuple[LostOperator, ...] = ()

    @property
    def is_proved(self) -> bool:
        """True if the program computes something else afterwards, which no rounding explains and the error shows."""
        return is_proof(self)


def is_proof(found: Alteration | AlteredOutput) -> bool:
    """True if the difference of two graphs in float64 is no rounding, and the error of the run is this difference."""
    return found.relative > found.least and found.explained >= EXPLAINED


def changed_text(output: AlteredOutput) -> str:
    """ "has 3 wrong elements among 4096: [0, 5] is 1.5, should be 1.25": a fault of an output."""
    count = math.prod(output.shape)
    text = f"has {wording.pluralize(output.elements, 'wrong element')} among {count}"
    if output.worst is None:
        return text
    place = ", ".join(map(str, unravel(output.worst.index, output.shape)))
    return f"{text}: [{place}] is {output.worst.actual}, should be {output.worst.expected}"


def alteration_of(altered: AlteredProgram, reference: Reference) -> Alteration:
    """The alteration that the evaluating process found, with the operators and model lines of its nodes."""
    exported = reference.of_exported

    def operators(names: Sequence[str]) -> tuple[LostOperator, ...]:
        if exported is None:
            return ()
        graph = exported.graphs[0]
        return tuple(
            LostOperator(
                node.name,
                node.target,
                node_text(node),
                reference.line(node),
                only_signs=node.name in altered.lost_signs,
                only_order=node.name in altered.lost_order,
                overwrites=base_name(graph, node.mutates[0]) if node.mutates else "",
            )
            for node in (graph.by_name[name] for name in names if name in graph.by_name)
        )

    return Alteration(
        altered.relative if altered.relative < LARGEST else math.inf,
        altered.explained,
        altered.least,
        altered.is_rounded,
        operators(altered.lost),
        operators(altered.kept),
    )


_JOINS = "aten.cat.default"


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """An operator that may have been computed wrongly.

    Attributes:
        node: "tanh_1".
        line: its model line; None if it is unknown.
        how: the way of computing it wrongly that explains the outputs, "with its operands swapped"; "" if none does.
        place: its node in the body of a branch or loop; "" elsewhere.
        partial: `how` explains the wrong elements; it was not tried in the others, which are right without it.
    """

    node: str
    operator: str
    line: ModelLine | None
    how: str = ""
    place: str = ""
    partial: bool = False

    @property
    def text(self) -> str:
        """ "aten.tanh.default (tanh_1) times 2 explains it"."""
        what = f"{self.operator} ({self.node})"
        if not self.how:
            return what
        return f"{what} {self.how} " + ("would explain the wrong elements" if self.partial else "explains it")


def suspects_of(
    reference: Reference, region: Region, result: RegionResult, loops: tuple[int, ...] = ()
) -> tuple[Suspect, ...]:
    """The operators of a region that its wrong outputs depend on.

    Those that explain the outputs, when they are computed wrongly, come first. Of the others, those of the first wrong
    output come first, the last ones before the others; those that right outputs depend on as well come last. They are
    not innocent: a kernel may compute an operator several times, or only one of its results wrongly. Right integers and
    booleans say nothing: an index may be right where the numbers are not. Behind all these come the concatenations that
    a wrong output is a part of: it may lie in the wrong place.

    Args:
        loops: the iteration of each loop that the launch is in.
    """
    graph = reference.graph(region.graph, region.function)
    if graph is None:
        return ()
    inside = set(region.nodes)
    wrong = {o.argument for o in result.outputs if verdict_on_output(o) is LaunchVerdict.WRONG}
    right = {o.argument for o in result.outputs if dtypes.has_fractions(o.dtype)} - wrong

    def ancestors(arguments: set[str]) -> set[str]:
        pending = [
            item.value.after or item.value.node for item in region.outputs if item.recorded.argument in arguments
        ]
        found: set[str] = set()
        while pending:
            name = pending.pop()
            if name in inside and name not in found:
                found.add(name)
                pending += graph.by_name[name].inputs
        return found

    blamed, innocent = ancestors(wrong), ancestors(right)
    other_results = [n for n in blamed - innocent if graph.by_name[n].is_member]
    innocent -= {name for result in other_results for name in graph.by_name[result].inputs}
    held = {item.recorded.argument: item.value.after or item.value.node for item in region.outputs}
    explained = {item.node: item for item in result.explanations if item.node in blamed}
    ordered: dict[str, None] = dict.fromkeys(explained)
    for output in graph.sorted(held[argument] for argument in wrong):  # the later ones may only have inherited it
        same = {argument for argument in wrong if held[argument] == output}
        ordered |= dict.fromkeys(n for n in graph.sorted(ancestors(same))[::-1] if n not in innocent)
    ordered |= dict.fromkeys(graph.sorted(blamed)[::-1])
    places = {held[argument] for argument in wrong}
    ordered |= {n.name: None for n in graph.nodes if n.target == _JOINS and not places.isdisjoint(n.inputs)}
    nodes = [graph.by_name[name] for name in ordered]
    return tuple(
        Suspect(
            node=node.name,
            operator=node.target,
            line=reference.line(node),
            how=explained[node.name].how if node.name in explained else "",
            place=place_in_subgraph(graph, node, loops),
            partial=node.name in explained and explained[node.name].is_partial,
        )
        for node in nodes
        if node.kind is NodeKind.CALL and not node.is_member
    )


def overwriting(states: Sequence[StateChange], reference: Reference) -> Iterator[OverwritingOperator]:
    """Yields the first operator that overwrites each state or input which does not change as the program says."""
    exported, right = reference.of_exported, (Advance.RIGHT, Advance.OTHER_BEGIN)
    for name in dict.fromkeys(state.name for state in states if state.advance not in right and exported is not None):
        assert exported is not None
        node, seen = _writer(name, exported.graphs[0]), f"overwrites {name}"
        if node is None:
            node, seen = _replacing(name, exported.graphs[0]), f"computes what replaces {name}"
        if node is not None:
            line = reference.line(node)
            yield OverwritingOperator(node=node.name, operator=node.target, seen=seen, line=line, state=name)


def _replacing(name: str, graph: Graph) -> Node | None:
    """The node that computes what a state is replaced by after a call; None where none does."""
    value = graph.nodes[-1].kwargs.get(name)
    node = graph.by_name.get(value.get("node", "")) if isinstance(value, Mapping) else None
    return node if node is not None and node.kind is NodeKind.CALL else None


def _writer(name: str, graph: Graph) -> Node | None:
    """The first node that overwrites a state or an input, or a view of it; None where none is known to."""
    inputs = [node.name for node in graph.nodes if node.kind is NodeKind.INPUT]
    held = {f"input {number} ({input_})": input_ for number, input_ in enumerate(inputs)} | dict(graph.weights)
    for node in graph.nodes:
        if any(base_name(graph, overwritten) == held.get(name) for overwritten in node.mutates):
            return node
    return None


def overwrites_states(graph: Graph) -> bool:
    """True if a program overwrites or replaces an input, a weight or a buffer."""
    overwritten = (graph.by_name[base_name(graph, name)] for name in graph.mutators)
    return bool(graph.nodes[-1].kwargs) or any(node.kind in (NodeKind.INPUT, NodeKind.WEIGHT) for node in overwritten)
