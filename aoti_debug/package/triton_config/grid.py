"""Block sizes of a Triton kernel, read from the C++ that computes its grid.

Inductor writes `((xnumel + (128 - 1)) / (128))` for a block of 128 and `xnumel` for a block of 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

_CEILING = re.compile(r"\(*\s*(\w+) \+ \(+(\d+) - 1\)+ / \(*(\d+)\)*\Z")
_X_BLOCK = ("grid_0", "xnumel", "XBLOCK")
_Y_BLOCK = ("grid_1", "ynumel", "YBLOCK")
# Kind of grid -> the grid variable, the number of elements that the block size divides, the name of the block size.
_GRIDS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "Grid1D": (_X_BLOCK,),
    "Grid2D": (_X_BLOCK, _Y_BLOCK),
    "Grid3D": (_X_BLOCK, _Y_BLOCK, ("grid_2", "znumel", "ZBLOCK")),
    "BatchMatmulGrid3D": (("grid_2", "xnumel", "XBLOCK"), _Y_BLOCK, ("grid_0", "znumel", "ZBLOCK")),
    "Grid2DWithYZOverflow": (_X_BLOCK, ("y_grid_raw_", "ynumel", "YBLOCK")),
    "MixOrderReductionGrid": (("grid_0", "xnumel", "RSPLIT_SIZE"),),
    "CooperativeReductionGrid": (("grid_1", "xnumel", "XBLOCK"),),
    "SplitScanGrid": (("grid_0", "r0_numel", "R0_BLOCK"), ("grid_1", "xnumel", "XBLOCK")),
}
_COMBINED = ("SequentialComboKernelGrid", "RoundRobinComboKernelGrid")
LARGEST_X, LARGEST_Y = 4096, 1024  # blocks that Inductor uses


def block_sizes(kind: str, sizes: Sequence[tuple[str, str]], meta: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the block sizes that result in a grid: name -> possible values, usually one.

    Args:
        kind: Inductor's name of the grid: "Grid1D".
        sizes: the variables of the grid and their expressions, in order.
        meta: `inductor_meta` of the kernel.
    """
    texts = {name: " ".join(text.split()) for name, text in sizes}
    if kind in _COMBINED:
        combined = meta.get("combo_grid_meta")
        return _combined(kind, texts, combined) if _is_known(combined) else {}
    by_name: dict[str, tuple[int, ...]] = {}
    for variable, numel, name in _GRIDS.get(kind, ()):
        block = _block(texts.get(variable, ""), numel)
        if block is not None:
            by_name[name] = (block,)
    if kind == "CooperativeReductionGrid" and texts.get("grid_0", "").isdigit():
        by_name["RSPLIT"] = (int(texts["grid_0"]),)
    return by_name


def _block(text: str, numel: str) -> int | None:
    """Returns the block size in an expression; None if the expression has another form than Inductor's."""
    if text == numel:
        return 1
    match = _CEILING.match(text)
    return int(match[2]) or None if match and match[1] == numel and match[2] == match[3] else None


def _is_known(meta: object) -> TypeGuard[Mapping[str, Any]]:
    """True if a `combo_grid_meta` describes combined kernels as Inductor does: each has at least a size."""
    if not isinstance(meta, dict):
        return False
    number, least = meta.get("num_kernels"), meta.get("min_blocks")
    return isinstance(number, int) and number <= len(meta) and isinstance(least, int | None)


def _combined(kind: str, texts: Mapping[str, str], meta: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the block sizes of a combo kernel by trial: the sizes of its kernels are folded into one number."""
    x_grid, y_grid = texts.get("grid_0", ""), texts.get("y_grid_raw_", "")
    candidates = {
        "XBLOCK": [x for x in _powers(LARGEST_X) if x_grid and _combined_x(kind, meta, x) == x_grid],
        "YBLOCK": [y for y in _powers(LARGEST_Y) if y_grid and _combined_y(meta, y) == y_grid],
    }
    return {name: tuple(values) for name, values in candidates.items() if values}


def _powers(largest: int) -> list[int]:
    return [1 << i for i in range(largest.bit_length())]


def _combined_x(kind: str, meta: Mapping[str, Any], block: int) -> str:
    numbers = range(meta["num_kernels"])
    sizes = [(meta.get(f"xnumel_{i}") or f"xnumel_{i}", bool(meta.get(f"no_x_dim_{i}"))) for i in numbers]
    if kind == "SequentialComboKernelGrid":
        whole: int | str = _sum([_ceiling(size, 1 if no_x else block) for size, no_x in sizes])
    else:
        alone = [size for size, no_x in sizes if no_x]
        shared = [size for size, no_x in sizes if not no_x]
        split = [_ceiling(_maximum(shared), block)] if shared else []
        whole = f"({_maximum([*alone, *split])}) * {len(sizes)}"
    least = meta.get("min_blocks")
    return str(_maximum([whole, least]) if least else whole)


def _combined_y(meta: Mapping[str, Any], block: int) -> str:
    numbers = range(meta["num_kernels"])
    sizes = [meta[f"ynumel_{i}"] or f"ynumel_{i}" for i in numbers if f"ynumel_{i}" in meta]
    return str(_ceiling(_maximum(sizes), block)) if sizes else ""


def _ceiling(size: int | str, block: int) -> int | str:
    if block == 1:
        return size
    return -(-size // block) if isinstance(size, int) else f"(({size} + ({block} - 1)) / ({block}))"


def _sum(items: Sequence[int | str]) -> int | str:
    texts, numbers = [x for x in items if isinstance(x, str)], [x for x in items if isinstance(x, int)]
    if not texts:
        return sum(numbers)
    return " + ".join([*texts, *([str(sum(numbers))] if numbers else [])])


def _maximum(items: Sequence[int | str]) -> int | str:
    texts, numbers = [x for x in items if isinstance(x, str)], [x for x in items if isinstance(x, int)]
    if not texts:
        return max(numbers, default=0)
    whole = texts[0]
    for item in [*texts[1:], *([f"(long){max(numbers)}"] if numbers else [])]:
        whole = f"std::max({whole}, {item})"
    return whole
