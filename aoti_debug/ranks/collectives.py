"""Launches of collectives: the operators of torch.distributed that other ranks take part in."""

from __future__ import annotations

import re

from aoti_debug.manifest import Site

_COLLECTIVE = re.compile(r"_?c10d(_functional)?(_autograd)?(::|\.|_)")
_WAIT = "wait_tensor"
# Their results are equal on every rank of the group; those of reduce_scatter and all_to_all are not.
_AGREEING = ("all_reduce", "all_gather", "broadcast")


def is_collective(site: Site) -> bool:
    """True if the launch begins a collective, or waits for its result."""
    return any(_COLLECTIVE.search(name) for name in (site.kernel, site.op))


def is_wait(site: Site) -> bool:
    """True if the launch waits for the result of a collective that another launch began."""
    return is_collective(site) and _WAIT in site.kernel


def gives_equal_results(site: Site) -> bool:
    """True if the launch begins a collective whose result is the same on every rank."""
    return is_collective(site) and any(name in site.kernel for name in _AGREEING)
