"""The nodes of the graph, and so the model lines, that the lines of a generated kernel come from.

Neither Inductor nor Triton records it. What is recorded is the node that each buffer holds; between the loads and the
stores of a kernel its expressions are compared with the operators of the graph and their operands. A line for which
that gives no single answer has no origin.
"""

from __future__ import annotations

from collections.abc import Mapping

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.manifest import Kernel, Manifest, ModelLine, Site
from aoti_debug.package.reference.program import Reference
from aoti_debug.triage.kernel_source.result_slices import statements
from aoti_debug.views.kernel_code.statement_nodes import StatementNodes


@dataclass(frozen=True)
class LineOrigin:
    """The origin of a line of a kernel's source.

    Attributes:
        line: in the source, from 1.
        node: the node of the graph that it computes, or a part of; "" if it only loads.
        module: the module path of the node; "" if it is unknown.
        model_line: of the node; None if it is unknown.
        reads: the launch's arguments that it loads from.
        writes: the launch's argument that it stores to; "" if it stores none.
    """

    line: int
    node: str = ""
    module: str = ""
    model_line: ModelLine | None = None
    reads: tuple[str, ...] = ()
    writes: str = ""


def line_origins(
    kernel: Kernel, site: Site, manifest: Manifest, reference: Reference | None
) -> Mapping[int, LineOrigin]:
    """The origins of the lines of a kernel, as a site launches it, by line.

    Args:
        reference: None if the package holds no graph: then the lines have arguments only.
    """
    parameters = {arg.param: arg.name for arg in site.args if arg.param and arg.base}
    pointers = frozenset(parameters)
    graph = reference.graph(site.subgraph, site.function) if reference is not None else None
    code = statements(kernel, pointers)
    nodes = {} if graph is None else StatementNodes(kernel, site, manifest, graph, parameters).nodes(code)
    origins: dict[int, LineOrigin] = {}
    for statement in code:
        name = nodes.get(statement.line)
        node = graph.by_name[name] if graph is not None and name else None
        writes = next((parameters[name] for name in statement.targets if name in pointers), "")
        origin = LineOrigin(
            statement.line,
            node.name if node else "",
            node.module if node else "",
            reference.line(node) if reference is not None and node else None,
            tuple(parameters[name] for name in sorted(statement.names & pointers)),
            writes if statement.store else "",
        )
        if origin != LineOrigin(statement.line):
            origins[statement.line] = origin
    return origins
