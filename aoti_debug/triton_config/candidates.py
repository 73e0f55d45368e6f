"""Block sizes that the grid of a Triton kernel does not depend on: those that Inductor would take, the likely first.

With any of them a kernel that Inductor wrote computes the same: they say how many elements a program reads at a time.
Only the order in which it adds depends on them. Parameters of a user's kernel may mean anything: none is chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from aoti_debug.triton_config.decorator import Heuristic

LARGEST = 4096  # elements of a block along a reduction, beyond which Inductor does not go
A_WARP = 128  # elements that Inductor gives a warp
_REDUCTION = ("r0_", "r1_")  # axes, as `size_hints` names them
_LOOPED = frozenset({"reduction", "cooperative_reduction"})
_SMALL_ROW = 512
_MOST_STAGES = 3


def of_sizes(heuristic: Heuristic, num_warps: int, known: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Name -> block sizes, the likely first.

    Args:
        known: sizes that are known from the grid.
    """
    if "RSPLIT_SIZE" in known:
        return _mixed(heuristic, known["RSPLIT_SIZE"])
    axes = [axis for axis in _REDUCTION if axis in heuristic.size_hints]
    if heuristic.name not in _LOOPED or not axes:
        return {}
    elements = A_WARP * num_warps
    if heuristic.arguments.get("reduction_hint") != "ReductionHint.INNER":
        elements = max(elements // math.prod(known.values()), 1)
    likely = max(round(elements ** (1 / len(axes))), 1)
    return {f"{axis.upper()}BLOCK": _around(likely, heuristic.size_hints[axis]) for axis in axes}


def _around(likely: int, hint: int) -> tuple[int, ...]:
    """Powers of two up to the expected size: the likely one, then those next to it."""
    largest = min(max(hint, 1), LARGEST).bit_length() - 1
    middle = min(likely.bit_length() - 1, largest)
    return tuple(1 << i for i in sorted(range(largest + 1), key=lambda i: (abs(i - middle), i)))


def _mixed(heuristic: Heuristic, split: int) -> dict[str, tuple[int, ...]]:
    """Of a kernel that reduces along two axes: rows are read XBLOCK at a time, of which a split has a whole number."""
    least = 4 if heuristic.size_hints.get("r0_", 0) <= _SMALL_ROW else 1
    likely = min(max(split // 32, least), 16)
    fitting = [x for x in _around(likely, 16) if split % x == 0]
    return {"XBLOCK": tuple(fitting), "NUM_STAGES": tuple(range(1, _MOST_STAGES + 1))}
