"""The configuration of a Triton kernel that a package does not record, from what it does.

The kernel's source names the parameters that are compiled in and what Inductor expected of its sizes; the wrapper
computes the grid from the block sizes and launches with a number of warps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aoti_debug.manifest import Inferred, Kernel, Origin
from aoti_debug.triton_config import candidates
from aoti_debug.triton_config.decorator import Heuristic, heuristic_of, is_literal
from aoti_debug.triton_config.grid import blocks

MOST = 12  # configurations that are kept of those that fit
STAGES, WARPS = "num_stages", "num_warps"
_USERS = "user_autotune"  # the heuristic of kernels that Inductor did not write
_USERS_STAGES = (3, 1)  # Triton's default first
_INDUCTORS_STAGES = (1,)
_DEFAULT_WARPS = 4
_LAUNCHERS = {STAGES, WARPS}  # Triton fills parameters of these names


def recovered(kernel: Kernel) -> Kernel:
    """The kernel with a configuration that fits its source, grid and warps; unchanged where none can be found."""
    heuristic = heuristic_of(kernel.source)
    if heuristic is None or not kernel.num_warps:
        return kernel
    own = _own_configs(heuristic)
    if not own:
        return _of_sizes(kernel, heuristic)
    return _of_several(kernel, heuristic, own) if all(map(_is_known, own)) else kernel


def decisive(kernel: Kernel) -> tuple[str, ...]:
    """Chosen parameters that what the kernel computes may depend on: those of configurations that its author lists.

    Inductor's blocks are not among them: its kernels compute the same with any that fits.
    """
    heuristic = heuristic_of(kernel.source)
    if heuristic is None or (heuristic.name != _USERS and not _own_configs(heuristic)):
        return ()
    chosen = (name for name, _ in kernel.config if kernel.origin(name) is Origin.CHOSEN)
    return tuple(name for name in chosen if name in heuristic.parameters)


def _own_configs(heuristic: Heuristic) -> Sequence[Any]:
    """The configurations that the source lists, as far as they are known."""
    given = heuristic.arguments
    if heuristic.name == "template":
        return [{name: given[name] for name in (STAGES, WARPS) if name in given}]
    listed = given.get("configs") or [config for config in (given.get("config"),) if config is not None]
    return listed if isinstance(listed, list | tuple) else [listed]


def _is_known(config: Any) -> bool:
    """Whether all of a configuration is known: values by their names, stages as a number."""
    named = isinstance(config, dict) and all(isinstance(name, str) for name in config)
    return named and is_literal(config) and isinstance(config.get(STAGES, 0), int)


def _of_several(kernel: Kernel, heuristic: Heuristic, own: Sequence[Mapping[str, Any]]) -> Kernel:
    """Of the configurations in the source those that give the launch."""
    wanted = {*heuristic.parameters, STAGES} - {WARPS}
    fitting = [
        config
        for config in own
        if config.get(WARPS, _DEFAULT_WARPS) == kernel.num_warps and _gives_grid(config, kernel, heuristic)
    ]
    stages = _USERS_STAGES if any(STAGES not in config for config in fitting) else ()
    whole = [
        {**config, WARPS: kernel.num_warps, **({} if STAGES in config else {STAGES: n})}
        for config in fitting
        for n in ((0,) if STAGES in config else stages)
    ]
    if not whole or not all(wanted <= config.keys() for config in whole):
        return kernel
    known = Origin.RECORDED if len(own) == 1 else Origin.DERIVED
    origins = {
        name: Origin.CHOSEN if len({repr(config.get(name)) for config in whole}) > 1 else known for name in whole[0]
    }
    return _with(kernel, whole, origins)


def _gives_grid(config: Mapping[str, Any], kernel: Kernel, heuristic: Heuristic) -> bool:
    """Whether the grid is that of the configuration, as far as the source says which that would be."""
    listed = heuristic.inductor_meta.get("precomputed_grids")
    grids = [grid for grid in listed if isinstance(grid, dict)] if isinstance(listed, list) else []
    written = [text for name, text in kernel.grid if name.startswith("grid_")]
    theirs = [grid.get("cpp") for grid in grids if grid.get("config") == config]
    return not theirs or written in theirs


def _of_sizes(kernel: Kernel, heuristic: Heuristic) -> Kernel:
    """Blocks that Inductor chose by the sizes it expected: from the grid, or such as it would take."""
    known = blocks(heuristic.grid_type, kernel.grid, heuristic.inductor_meta)
    wanted = [name for name in heuristic.parameters if name not in _LAUNCHERS]
    chosen = candidates.of_sizes(heuristic, kernel.num_warps, {n: v[0] for n, v in known.items()})
    possible = {name: known.get(name) or chosen.get(name, ()) for name in wanted}
    possible[STAGES] = _USERS_STAGES if heuristic.name == _USERS else _INDUCTORS_STAGES
    if not all(possible.values()):
        return kernel
    origins = {name: Origin.DERIVED if name in known and len(known[name]) == 1 else Origin.CHOSEN for name in possible}
    configs = [{**config, WARPS: kernel.num_warps} for config in _combinations(possible)]
    return _with(kernel, configs, origins)


def _combinations(possible: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """The likely ones first: those whose values stand at the beginning of their sequences."""
    indices = itertools.product(*(range(len(values)) for values in possible.values()))
    for index in sorted(indices, key=lambda index: (sum(index), index)):
        yield {name: values[i] for (name, values), i in zip(possible.items(), index, strict=True)}


def _with(kernel: Kernel, configs: Sequence[Mapping[str, Any]], origins: Mapping[str, Origin]) -> Kernel:
    first, *others = (tuple((name, repr(value)) for name, value in config.items()) for config in configs[:MOST])
    return replace(
        kernel,
        config=first,
        inferred=tuple(
            Inferred(name, origin)
            for name, origin in origins.items()
            if name != WARPS and origin is not Origin.RECORDED
        ),
        other_configs=tuple(others),
    )
