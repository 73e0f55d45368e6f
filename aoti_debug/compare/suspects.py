"""The operators that may have been computed wrongly in a wrong launch."""

from __future__ import annotations

from aoti_debug.base import dtypes
from aoti_debug.base.dtypes import Category
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.measure.verdicts import LaunchVerdict, verdict_on_output
from aoti_debug.compare.protocol.measurement import RegionResult
from aoti_debug.compare.protocol.request import Region
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.reference.node_text import place_in_subgraph
from aoti_debug.package.reference.program import NodeKind, Reference

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
    right = {o.argument for o in result.outputs if _is_floating(o.dtype)} - wrong

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


def _is_floating(name: str) -> bool:
    dtype = dtypes.of_name(name)
    return dtype is not None and dtype.category in (Category.FLOATING, Category.COMPLEX)
