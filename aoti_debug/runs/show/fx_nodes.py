"""The FX nodes that one launch computes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aoti_debug.package.manifest import Site


def own_nodes(site: Site, sites: Sequence[Site]) -> tuple[str, ...]:
    """The nodes of the graph after Inductor's passes that this launch computes, without those of other launches.

    Inductor lists the nodes of an operator also with the kernels that prepare its arguments, and theirs with the
    operator: a node that is named after an operator belongs only to the launch that calls it, which computes no other.
    """
    nodes = site.provenance.post_grad_nodes
    if called := _called(site):
        return called
    others = {node for other in sites if other.id != site.id for node in _called(other)}
    return tuple(node for node in nodes if node not in others) or nodes


def _called(site: Site) -> tuple[str, ...]:
    """The nodes that are named after the operator: "addmm", "addmm_1" of aten.addmm.out."""
    operator = _name(site.op)
    if not operator:
        return ()
    named = re.compile(rf"{re.escape(operator)}(?:_\d+)?\Z")
    return tuple(node for node in site.provenance.post_grad_nodes if named.match(node))


def _name(op: str) -> str:
    """The operator without namespace, overload and in-place underscore: index_put of "aten.index_put_.default"."""
    _, _, name = op.replace("::", ".").partition(".")
    return name.partition(".")[0].rstrip("_")
