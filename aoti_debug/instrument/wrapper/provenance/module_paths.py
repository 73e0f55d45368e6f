"""The module paths of launch sites, from the graphs that their kernels were generated from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from aoti_debug.package.manifest import Site
from aoti_debug.package.reference.program import Graph, Reference


def with_modules(sites: Sequence[Site], reference: Reference) -> tuple[Site, ...]:
    """Returns the sites with the paths of the modules that their operations belong to.

    The operations of a site are the nodes that Inductor has recorded for it, otherwise those whose results it writes.
    """
    return tuple(_with_modules(site, reference.graph(site.subgraph, site.function)) for site in sites)


def _with_modules(site: Site, graph: Graph | None) -> Site:
    if graph is None:
        return site
    written = (graph.held.get(arg.base or arg.name, "") for arg in site.args if arg.written)
    modules = _modules(site.provenance.post_grad_nodes, graph) or _modules(written, graph)
    return replace(site, provenance=replace(site.provenance, modules=modules))


def _modules(names: Iterable[str], graph: Graph) -> tuple[str, ...]:
    """The module paths of nodes, in the order of execution; those of the model itself have none."""
    known = [name for name in dict.fromkeys(names) if name in graph.by_name]
    paths = (graph.by_name[name].module for name in graph.sorted(known))
    return tuple(dict.fromkeys(path for path in paths if path))
