"""Infers the configuration of a Triton kernel, which a package does not record, from its source and its launch.

The kernel's source names the constexpr parameters and the sizes that Inductor expected; the wrapper computes
the grid from the block sizes and passes the number of warps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aoti_debug.package.manifest import Inferred, Kernel, Origin
from aoti_debug.package.triton_config import block_size_candidates
from aoti_debug.package.triton_config.decorator import Heuristic, is_literal, read_heuristic
from aoti_debug.package.triton_config.grid import block_sizes

MAX_CONFIGS = 12  # of the configurations that fit
STAGES, WARPS = "num_stages", "num_warps"
_USER_HEURISTIC = "user_autotune"  # the heuristic of user-defined kernels
_USER_STAGES = (3, 1)  # Triton's default first
_INDUCTOR_STAGES = (1,)
_DEFAULT_WARPS = 4
_LAUNCH_OPTIONS = {STAGES, WARPS}  # Triton sets parameters of these names itself


def infer_config(kernel: Kernel) -> Kernel:
    """Returns the kernel with a configuration that fits its source, grid and warps; unchanged if none is found."""
    heuristic = read_heuristic(kernel.source)
    if heuristic is None or not kernel.num_warps:
        return kernel
    listed = _own_configs(heuristic)
    if not listed:
        return _from_size_hints(kernel, heuristic)
    return _from_listed_configs(kernel, heuristic, listed) if all(map(_is_complete, listed)) else kernel


def result_affecting_parameters(kernel: Kernel) -> tuple[str, ...]:
    """Returns the chosen parameters that may affect the kernel's results: those of configurations listed in its source.

    Block sizes of Inductor's kernels are not among them: these compute the same with any that fits.
    """
    heuristic = read_heuristic(kernel.source)
    if heuristic is None or (heuristic.name != _USER_HEURISTIC and not _own_configs(heuristic)):
        return ()
    chosen = (name for name, _ in kernel.config if kernel.origin(name) is Origin.CHOSEN)
    return tuple(name for name in chosen if name in heuristic.parameters)


def _own_configs(heuristic: Heuristic) -> Sequence[Any]:
    """Returns the configurations that the source lists, as far as they are literals."""
    arguments = heuristic.arguments
    if heuristic.name == "template":
        return [{name: arguments[name] for name in (STAGES, WARPS) if name in arguments}]
    listed = arguments.get("configs") or [config for config in (arguments.get("config"),) if config is not None]
    return listed if isinstance(listed, list | tuple) else [listed]


def _is_complete(config: Any) -> bool:
    """True if a configuration is known completely: values by their names, stages as a number."""
    named = isinstance(config, dict) and all(isinstance(name, str) for name in config)
    return named and is_literal(config) and isinstance(config.get(STAGES, 0), int)


def _from_listed_configs(kernel: Kernel, heuristic: Heuristic, listed: Sequence[Mapping[str, Any]]) -> Kernel:
    """Chooses those configurations of the source that result in the launch."""
    required = {*heuristic.parameters, STAGES} - {WARPS}
    fitting = [
        config
        for config in listed
        if config.get(WARPS, _DEFAULT_WARPS) == kernel.num_warps and _matches_grid(config, kernel, heuristic)
    ]
    stages = _USER_STAGES if any(STAGES not in config for config in fitting) else ()
    complete = [
        {**config, WARPS: kernel.num_warps, **({} if STAGES in config else {STAGES: n})}
        for config in fitting
        for n in ((0,) if STAGES in config else stages)
    ]
    if not complete or not all(required <= config.keys() for config in complete):
        return kernel
    single_origin = Origin.RECORDED if len(listed) == 1 else Origin.DERIVED
    origins = {
        name: Origin.CHOSEN if len({repr(config.get(name)) for config in complete}) > 1 else single_origin
        for name in complete[0]
    }
    return _with_configs(kernel, complete, origins)


def _matches_grid(config: Mapping[str, Any], kernel: Kernel, heuristic: Heuristic) -> bool:
    """True if a configuration results in the kernel's grid, or if the source does not record its grid."""
    listed = heuristic.inductor_meta.get("precomputed_grids")
    grids = [grid for grid in listed if isinstance(grid, dict)] if isinstance(listed, list) else []
    written = [text for name, text in kernel.grid if name.startswith("grid_")]
    theirs = [grid.get("cpp") for grid in grids if grid.get("config") == config]
    return not theirs or written in theirs


def _from_size_hints(kernel: Kernel, heuristic: Heuristic) -> Kernel:
    """Derives block sizes from the grid; those that the grid does not depend on from the expected sizes."""
    known = block_sizes(heuristic.grid_type, kernel.grid, heuristic.inductor_meta)
    names = [name for name in heuristic.parameters if name not in _LAUNCH_OPTIONS]
    chosen = block_size_candidates.likely_block_sizes(heuristic, kernel.num_warps, {n: v[0] for n, v in known.items()})
    possible = {name: known.get(name) or chosen.get(name, ()) for name in names}
    possible[STAGES] = _USER_STAGES if heuristic.name == _USER_HEURISTIC else _INDUCTOR_STAGES
    if not all(possible.values()):
        return kernel
    origins = {name: Origin.DERIVED if name in known and len(known[name]) == 1 else Origin.CHOSEN for name in possible}
    configs = [{**config, WARPS: kernel.num_warps} for config in _combinations(possible)]
    return _with_configs(kernel, configs, origins)


def _combinations(possible: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """Yields all combinations, the likeliest first: those whose values come first in their sequences."""
    indices = itertools.product(*(range(len(values)) for values in possible.values()))
    for index in sorted(indices, key=lambda index: (sum(index), index)):
        yield {name: values[i] for (name, values), i in zip(possible.items(), index, strict=True)}


def _with_configs(kernel: Kernel, configs: Sequence[Mapping[str, Any]], origins: Mapping[str, Origin]) -> Kernel:
    first, *others = (tuple((name, repr(value)) for name, value in config.items()) for config in configs[:MAX_CONFIGS])
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
