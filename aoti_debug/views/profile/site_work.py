"""The work of the launches of each site, from their tensors and the graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from aoti_debug.package.inputs.symbolic_sizes import Symbols, is_symbol
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.recording.values import Number
from aoti_debug.package.reference.program import Graph, Reference, TensorType
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.runs.show.fx_nodes import own_nodes
from aoti_debug.views.profile.operation_counts import work_of
from aoti_debug.views.profile.work import Work, moved


def site_works(launches: Iterable[Launch], manifest: Manifest, reference: Reference | None) -> dict[int, Work]:
    """The work of one launch of each site, by the site's id.

    Args:
        launches: those of one call.
        reference: None if the package holds no graph: then no operations are known.
    """
    first: dict[int, Launch] = {}
    for launch in launches:
        first.setdefault(launch.site.id, launch)
    symbols = _symbols(first.values(), reference)
    works = {}
    for id_, launch in first.items():
        site = launch.site
        graph = None if reference is None else reference.graph(site.subgraph, site.function)
        work = Work() if graph is None else work_of(graph, own_nodes(site, manifest.sites), symbols)
        read, written = moved(launch) or (None, None)
        works[id_] = replace(work, read=read, written=written)
    return works


def _symbols(launches: Iterable[Launch], reference: Reference | None) -> Symbols:
    """The values of symbolic sizes, from the numbers and tensors that launches were passed."""
    symbols = Symbols()
    for launch in launches:
        graph = None if reference is None else reference.graph(launch.site.subgraph, launch.site.function)
        for argument in launch.args:
            if isinstance(argument.before, Number) and is_symbol(argument.spec.text):
                symbols.bind(argument.spec.text, int(argument.before.value))
            for type_ in () if graph is None else _types(graph, argument.name):
                layout = argument.layout
                if layout is not None and len(layout.shape) == len(type_.shape):
                    for expression, size in zip(type_.shape, layout.shape, strict=True):
                        symbols.bind(expression, size)
    return symbols


def _types(graph: Graph, variable: str) -> Iterator[TensorType]:
    """Yields the type of the value that a variable holds, if a node has it."""
    node = graph.by_name.get(graph.held.get(variable, variable))
    if node is not None and len(node.types) == 1 and node.types[0] is not None:
        yield node.types[0]
