"""Follows a non-finite element of a recorded launch to the operator of its graph that made it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.compare_run import Scope, reference_of, request_for
from aoti_debug.compare.locate.input_names import of_origin
from aoti_debug.compare.locate.outer_values import names_in
from aoti_debug.compare.protocol.origin import Origin, TracedElement
from aoti_debug.compare.regions.regions import find_region
from aoti_debug.compare.run_worker import evaluate
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.reference.node_text import place_in_subgraph
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
