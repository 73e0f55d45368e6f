"""Candidates for block sizes that do not affect the grid of a Triton kernel: those that Inductor would choose.

A kernel that Inductor wrote computes the same with any of them: they are the number of elements that a program reads at
a time, and only the order of additions depends on them. Parameters of user kernels have unknown meanings and get no
candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from aoti_debug.package.triton_config.decorator import Heuristic

LARGEST = 4096  # elements: the largest block along a reduction that Inductor uses
WARP_ELEMENTS = 128  # elements per warp that Inductor aims at
_REDUCTION = ("r0_", "r1_")  # axes, as `size_hints` names them
_LOOPED = frozenset({"reduction", "cooperative_reduction"})
_SMALL_ROW = 512
_MOST_STAGES = 3


def likely_block_sizes(heuristic: Heuristic, num_warps: int, known: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Returns candidate block sizes by parameter name, the likeliest first.

    Args:
        known: block sizes that are known from the grid.
    """
    if "RSPLIT_SIZE" in known:
        return _mixed_order_candidates(heuristic, known["RSPLIT_SIZE"])
    axes = [axis for axis in _REDUCTION if axis in heuristic.size_hints]
    if heuristic.name not in _LOOPED or not axes:
        return {}
    elements = WARP_ELEMENTS * num_warps
    if heuristic.arguments.get("reduction_hint") != "ReductionHint.INNER":
        elements = max(elements // math.prod(known.values()), 1)
    likely = max(round(elements ** (1 / len(axes))), 1)
    return {f"{axis.upper()}BLOCK": _around(likely, heuristic.size_hints[axis]) for axis in axes}


def _around(likely: int, hint: int) -> tuple[int, ...]:
    """Returns the powers of two up to the expected size, sorted by their distance from the likely one."""
    largest = min(max(hint, 1), LARGEST).bit_length() - 1
    middle = min(likely.bit_length() - 1, largest)
    return tuple(1 << i for i in sorted(range(largest + 1), key=lambda i: (abs(i - middle), i)))


def _mixed_order_candidates(heuristic: Heuristic, split: int) -> dict[str, tuple[int, ...]]:
    """Returns candidates for a kernel that reduces along both axes: each split is a multiple of XBLOCK rows."""
    least = 4 if heuristic.size_hints.get("r0_", 0) <= _SMALL_ROW else 1
    likely = min(max(split // 32, least), 16)
    fitting = [x for x in _around(likely, 16) if split % x == 0]
    return {"XBLOCK": tuple(fitting), "NUM_STAGES": tuple(range(1, _MOST_STAGES + 1))}
