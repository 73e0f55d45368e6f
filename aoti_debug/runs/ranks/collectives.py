"""Launches of collectives: the operators of torch.distributed that other ranks take part in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from aoti_debug.base.abi import CallKind
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Site
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_COLLECTIVE = re.compile(r"_?c10d(_functional)?(_autograd)?(::|\.|_)")
_WAIT = "wait_tensor"
_GROUP = "group_name"
_ALL_RANKS = "0"  # torch.distributed's name of the first group, which holds all ranks
# No rank has such a result before all have entered; the root of a broadcast waits for nobody.
_SYNCHRONOUS = ("all_reduce", "all_gather", "all_to_all")
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


def is_synchronous(site: Site) -> bool:
    """True if the launch begins a collective whose result no rank has before all of the group have entered it."""
    return is_collective(site) and any(name in site.kernel for name in _SYNCHRONOUS)


def is_of_all_ranks(site: Site) -> bool:
    """True if the launch begins a collective of all ranks; False of a part of them, or if the group is unknown."""
    for argument in site.args:
        if argument.name == _GROUP:
            return argument.text == f'"{_ALL_RANKS}"'
    return any(o.name == _GROUP and o.value == json.dumps({"as_string": _ALL_RANKS}) for o in site.operands)


def waits(run: RunDir) -> Iterator[tuple[Launch, Launch]]:
    """Yields each launch that waited for a collective, with the one that began it on the same tensor.

    Raises:
        RunDirError: a record of the run cannot be read.
    """
    begun: dict[int, Launch] = {}  # the last collective on a tensor, by its address
    for launch in run.launches:
        if launch.key.kind is not CallKind.MODEL or not is_collective(launch.site):
            continue
        addresses = [a.tensor.data_ptr for a in launch.args if isinstance(a.tensor, Tensor)]
        if not is_wait(launch.site):
            begun.update((address, launch) for address in addresses)
        elif first := next((begun[a] for a in addresses if a in begun), None):
            yield first, launch
