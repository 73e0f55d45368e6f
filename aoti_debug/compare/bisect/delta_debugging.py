"""The smallest set that does something, by delta debugging."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class SetOutcome(Enum):
    """The effect of a set: it does what is searched for, or not."""

    YES = "it does"
    NO = "neither it nor any part of it does"
    UNKNOWN = "not known: a part of it may"


def smallest(items: Sequence[T], outcome: Callable[[tuple[T, ...]], SetOutcome]) -> tuple[T, ...]:
    """A set that does it, of which no part that was tried does; () if none was found.

    Where a set tells nothing, its parts are tried: as in delta debugging, first halves, then quarters and so on, and
    while a set that does it is known, also what is left of it without such a part. One item among n takes about
    1.5 * log2 n calls of `outcome`.

    Args:
        items: the likeliest first.
    """
    search = _Search(outcome)
    current = tuple(items)
    if not current:
        return ()
    does = search.outcome(current)
    if does is SetOutcome.NO:
        return ()
    parts = 2
    while len(current) > 1:
        chosen = next((c for c in _candidates(current, parts, does) if search.outcome(c) is SetOutcome.YES), None)
        if chosen is not None:
            parts = 2 if len(chosen) <= len(current) // parts + 1 else max(parts - 1, 2)
            current, does = chosen, SetOutcome.YES
        elif parts >= len(current):
            break
        else:
            parts = min(2 * parts, len(current))
    return current if does is SetOutcome.YES else ()


def _candidates(current: tuple[T, ...], parts: int, does: SetOutcome) -> Iterator[tuple[T, ...]]:
    """The parts of a set, then what is left without each."""
    bounds = [len(current) * part // parts for part in range(parts + 1)]
    pairs = list(itertools.pairwise(bounds))
    yield from (current[first:last] for first, last in pairs)
    if does is SetOutcome.YES and parts > 2:
        yield from (current[:first] + current[last:] for first, last in pairs)


class _Search(Generic[T]):
    """The outcomes of sets, each tried once."""

    def __init__(self, outcome: Callable[[tuple[T, ...]], SetOutcome]) -> None:
        self._outcome = outcome
        self._none: list[frozenset[T]] = []
        self._known: dict[frozenset[T], SetOutcome] = {}

    def outcome(self, items: tuple[T, ...]) -> SetOutcome:
        key = frozenset(items)
        if any(key <= none for none in self._none):
            return SetOutcome.NO
        if key not in self._known:
            self._known[key] = self._outcome(items)
        if self._known[key] is SetOutcome.NO:
            self._none.append(key)
        return self._known[key]
