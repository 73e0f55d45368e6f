"""Triton kernels as compiled packages describe them: grids as torch writes them, no configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch._inductor.runtime.triton_heuristics import GridExpr

from aoti_debug.package.manifest import Kernel
from aoti_debug.package.triton_config import read_heuristic

Sizes = tuple[tuple[str, str], ...]


def written(meta: dict[str, Any], config: dict[str, int]) -> Sizes:
    """The grid as torch writes it in a wrapper."""
    grid = GridExpr.from_meta(meta, dict(config), mode="cpp")
    before = [line.removeprefix("uint32_t ").rstrip(";").split(" = ", 1) for line in grid.prefix]
    whole = zip(("grid_0", "grid_1", "grid_2"), (grid.x_grid, grid.y_grid, grid.z_grid), strict=True)
    return (*((name, text) for name, text in before), *((name, str(size)) for name, size in whole))


def as_compiled(kernel: Kernel) -> Kernel:
    """The kernel as a compiled package describes it: without its configuration, with the grid that torch writes."""
    heuristic = read_heuristic(kernel.source)
    assert heuristic is not None
    config = {name: int(value) for name, value in kernel.config}
    return replace(kernel, config=(), grid=written(dict(heuristic.inductor_meta), config))
