"""Finds the operator, within a launch that failed, that cannot use one of its operands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.compare_run import Scope, reference_of, request_for
from aoti_debug.compare.locate.input_names import of_bad_operand
from aoti_debug.compare.locate.outer_values import model_input, names_in
from aoti_debug.compare.protocol.bad_operand import BadOperand
from aoti_debug.compare.regions.fault_region import fault_region
from aoti_debug.compare.run_worker import evaluate
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.reference.node_text import place_in_subgraph
from aoti_debug.package.reference.program import NodeKind
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch


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
