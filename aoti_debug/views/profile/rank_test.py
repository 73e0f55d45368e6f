"""The exact rank test of Mann and Whitney, for whether the numbers of one sample are larger than those of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache


def chance_of_larger(larger: Sequence[float], smaller: Sequence[float]) -> float:
    """The chance that samples of one distribution look at least as much as if the first were larger.

    Args:
        larger, smaller: samples, at least one number each; equal numbers count against the difference.

    Returns:
        A probability: small if the numbers of `larger` are larger.
    """
    wins = sum(x > y for x in larger for y in smaller)
    n, m = len(larger), len(smaller)
    favourable = sum(_arrangements(n, m, count) for count in range(wins, n * m + 1))
    return favourable / math.comb(n + m, n)


@cache
def _arrangements(n: int, m: int, wins: int) -> int:
    """The orders of two samples in which so many pairs have the larger number in the first one."""
    if wins < 0:
        return 0
    if n == 0 or m == 0:
        return int(wins == 0)
    return _arrangements(n - 1, m, wins - m) + _arrangements(n, m - 1, wins)
