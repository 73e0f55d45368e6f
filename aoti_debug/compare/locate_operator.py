"""Finds the operator, and its model line, behind a non-finite element or a fault of a recorded launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.compare_run import Scope, line_of_refusal, reference_of, request_for
from aoti_debug.compare.evaluation_process import evaluate
from aoti_debug.compare.protocol.messages import BadOperand, Made, Operand, Origin, Refusal, TracedElement
from aoti_debug.compare.regions.program_calls import exported_run
from aoti_debug.compare.regions.regions import fault_region, find_region, find_regions
from aoti_debug.package.manifest import Manifest, ModelLine
from aoti_debug.package.node_text import place_in_subgraph
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, nodes_in, returned_nodes
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir


@dataclass(frozen=True)
class LocatedOrigin:
    """The operator that made an element of an output non-finite.

    Attributes:
        line: its model line; None if that is not known.
        place: its node in the body of a branch or loop; "" elsewhere.
    """

    origin: Origin
    line: ModelLine | None
    place: str = ""

    @property
    def operator(self) -> str:
        """The operator: "aten.log.default"."""
        return self.origin.made.operator


def trace(run: RunDir, traced: TracedElement, scope: Scope, folder: Path) -> LocatedOrigin | None:
    """Finds the operator that made an element of an output non-finite; None if it cannot be told.

    Args:
        run: with the tensors that the launch, and those before it that it depends on, read and wrote.
        folder: for the request and the output of the process that evaluates the graph.

    Raises:
        ArtifactError: the package holds no reference.
        TargetError: the program cannot be evaluated.
        RunDirError: the run's package was not found, or is another one.
    """
    reference, package = reference_of(run)
    region = find_region(run, reference, run.launch(traced.launch))
    if region is None:
        return None
    alone = replace(region, outputs=tuple(o for o in region.outputs if o.recorded.argument == traced.argument))
    request = replace(request_for(run, package, scope, (alone,)), traced=(traced,))
    origin = next(iter(evaluate(request, folder, lambda _: None).origins), None)
    graph = reference.graph(region.graph, region.function)
    if origin is None or graph is None:
        return None
    node = graph.by_name[origin.made.node]
    loops = run.launch(region.launch).loops
    origin = of_origin(origin, names_in(run.manifest, reference, graph, loops))
    return LocatedOrigin(origin, reference.line(node), place_in_subgraph(graph, node, loops))


@dataclass(frozen=True)
class LocatedOperand:
    """An operand that an operator cannot use.

    Attributes:
        line: the operator's model line; None if it is not known.
        computed_line: the line of what computed the operand, in this launch or before; None if that is not known.
        place: its node in the body of a branch or loop; "" elsewhere.
        input: the user's name of the model input or weight that `bad.source` lies in; "" if it lies in neither.
    """

    bad: BadOperand
    line: ModelLine | None
    computed_line: ModelLine | None
    place: str
    input: str = ""

    @property
    def operator(self) -> str:
        """The operator: "aten.index.Tensor"."""
        return self.bad.operator


def trace_fault(run: RunDir, launch: Launch, scope: Scope, folder: Path) -> LocatedOperand | None:
    """Finds the operand that made a launch fail; None if it cannot be told.

    Args:
        run: with the tensors that the launch was about to read.
        folder: for the request and the output of the process that evaluates the graph.

    Raises:
        ArtifactError: the package holds no reference.
        TargetError: the program cannot be evaluated.
        RunDirError: the run's package was not found, or is another one.
    """
    reference, package = reference_of(run)
    region = fault_region(run, reference, launch)
    graph = reference.graph(launch.site.subgraph, launch.site.function)
    if region is None or graph is None or not region.inputs:
        return None
    request = replace(request_for(run, package, scope, (region,)), faulty=(launch.id,))
    bad = next(iter(evaluate(request, folder, lambda _: None).bad_operands), None)
    if bad is None:
        return None
    node, operand = graph.by_name[bad.node], graph.by_name[bad.name]
    maker = operand if bad.computed is None else graph.by_name[bad.computed.node]
    computed = reference.line(maker) if maker.kind is NodeKind.CALL else None
    source = None if bad.source is None else graph.by_name.get(bad.source.node)
    name = "" if source is None else model_input(run.manifest, reference, graph, source, launch.loops)
    bad = of_bad_operand(bad, names_in(run.manifest, reference, graph, launch.loops))
    return LocatedOperand(bad, reference.line(node), computed, place_in_subgraph(graph, node, launch.loops), name)


@dataclass(frozen=True)
class CallInEager:
    """The calls of a run, made by the exported program in eager.

    Attributes:
        refusal: why it raises an exception; None if it does not.
        line: of the operator that does; None if that is not known.
    """

    refusal: Refusal | None
    line: ModelLine | None = None

    @property
    def operator(self) -> str:
        """The operator that raises, "aten._assert_scalar.default", or the exception; what is said where none does."""
        refusal = self.refusal
        return "eager raises nothing" if refusal is None else refusal.operator or refusal.error


def called_in_eager(run: RunDir, scope: Scope, folder: Path) -> CallInEager | None:
    """Calls the exported program in eager as the model was called; None where that cannot be done.

    Args:
        run: which may have failed; its inputs are known.
        folder: for the request and the output of the process that evaluates the graph.

    Raises:
        ArtifactError: the package holds no reference.
        TargetError: the program cannot be evaluated.
        RunDirError: the run's package was not found, or is another one.
    """
    reference, package = reference_of(run)
    calls = exported_run(run, reference, find_regions(run, reference), returned=None)
    if calls is None:
        return None
    evaluated = evaluate(replace(request_for(run, package, scope, ()), exported_run=calls), folder, lambda _: None)
    if evaluated.refusal is not None:
        return CallInEager(evaluated.refusal, line_of_refusal(evaluated.refusal, reference))
    return None if evaluated.states_failure or evaluated.program_failure else CallInEager(None)


_CONDITION, _LOOP = "higher_order.cond", "higher_order.while_loop"


def model_input(manifest: Manifest, reference: Reference, graph: Graph, node: Node, loops: tuple[int, ...]) -> str:
    """The user's name of the model input or weight that a node is; "" if it is another value.

    Args:
        graph: that of the node.
        loops: the iteration of each loop around it, the innermost last.
    """
    inner, place = graph, node
    while place.kind is NodeKind.INPUT and inner.name:
        outer = _outer(reference, inner, place, loops)
        if outer is None:
            return ""
        inner, place, loops = outer
    if place.kind is NodeKind.WEIGHT:
        return place.target
    if place.kind is not NodeKind.INPUT:
        return ""
    names = dict(zip(manifest.inputs, manifest.input_names, strict=False))
    return names.get(place.name, place.name)


def names_in(manifest: Manifest, reference: Reference, graph: Graph, loops: tuple[int, ...]) -> Mapping[str, str]:
    """The model's names of the inputs and weights of a graph, by its own names."""
    given = [node for node in graph.nodes if node.kind in (NodeKind.INPUT, NodeKind.WEIGHT)]
    named = ((node.name, model_input(manifest, reference, graph, node, loops)) for node in given)
    return {own: name for own, name in named if name}


def _outer(
    reference: Reference, graph: Graph, node: Node, loops: tuple[int, ...]
) -> tuple[Graph, Node, tuple[int, ...]] | None:
    """The value of the graph around a body that an input of the body is, and the loops around that graph.

    None for a value that a loop has made in an earlier iteration.
    """
    position = [item.name for item in graph.nodes if item.kind is NodeKind.INPUT].index(node.name)
    for outer in reference.graphs:
        for call in outer.nodes:
            if outer.function != graph.function or not _calls(outer, call, graph.name):
                continue
            if call.target == _CONDITION:
                operands, around = list(call.args[3]), loops
            elif call.target == _LOOP:
                carried = len(call.args[2])
                is_made = position < carried and bool(loops) and loops[-1] > 0
                if is_made and returned_nodes(graph)[position : position + 1] != [node.name]:
                    return None
                operands, around = [*call.args[2], *call.args[3]], loops[:-1]
            else:
                return None
            name = next(nodes_in(operands[position : position + 1]), "")
            return (outer, outer.by_name[name], around) if name else None
    return None


def _calls(graph: Graph, call: Node, body: str) -> bool:
    """True if a node executes a body."""
    subgraphs = (graph.by_name[name] for name in call.inputs)
    return any(node.kind is NodeKind.SUBGRAPH and node.target == body for node in subgraphs)


def of_bad_operand(bad: BadOperand, names: Mapping[str, str]) -> BadOperand:
    """The bad operand with the names that the model gives its inputs."""
    computed = bad.computed
    if computed is not None:
        computed = replace(computed, operands=_operands(computed.operands, names))
    return replace(bad, name=names.get(bad.name, bad.name), table=names.get(bad.table, bad.table), computed=computed)


def of_origin(origin: Origin, names: Mapping[str, str]) -> Origin:
    """The origin of a value with the names that the model gives its inputs."""
    became = None if origin.became is None else _made(origin.became, names)
    return replace(origin, made=_made(origin.made, names), became=became)


def _made(made: Made, names: Mapping[str, str]) -> Made:
    return replace(made, operands=_operands(made.operands, names))


def _operands(operands: tuple[Operand, ...], names: Mapping[str, str]) -> tuple[Operand, ...]:
    return tuple(replace(operand, name=names.get(operand.name, operand.name)) for operand in operands)
