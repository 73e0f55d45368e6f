"""The rank test by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations


def chance_by_enumeration(larger: Sequence[float], smaller: Sequence[float]) -> float:
    """The share of all orders of distinct numbers in which the first sample wins at least as many pairs."""
    wins = sum(x > y for x in larger for y in smaller)
    places = range(len(larger) + len(smaller))
    found = []
    for chosen in combinations(places, len(larger)):
        others = [place for place in places if place not in chosen]
        found.append(sum(x > y for x in chosen for y in others))
    return sum(count >= wins for count in found) / len(found)
