"""The smallest set of changes that heals, by delta debugging: some sets may tell nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcome(Enum):
    """The effect of a set of changes on the finding."""

    RIGHT = "it is gone"
    WRONG = "it is still there"
    UNKNOWN = "not known: the program could not be built or run, or failed in another way"


def smallest(changes: Sequence[T], outcome: Callable[[tuple[T, ...]], Outcome]) -> tuple[T, ...]:
    """A set of changes that heals, of which no part that was tried heals; () if none was found.

    A set that does not heal has no part that does. Where a set tells nothing, its parts are tried: as in delta
    debugging, first halves, then quarters and so on, and while a set that heals is known, also what is left of it
    without such a part. One change among n takes about 1.5 * log2 n calls of `outcome`.

    Args:
        changes: the likeliest first.
    """
    search = _Search(outcome)
    current = tuple(changes)
    if not current:
        return ()
    heals = search.outcome(current)
    if heals is Outcome.WRONG:
        return ()
    parts = 2
    while len(current) > 1:
        chosen = next((c for c in _candidates(current, parts, heals) if search.outcome(c) is Outcome.RIGHT), None)
        if chosen is not None:
            parts = 2 if len(chosen) <= len(current) // parts + 1 else max(parts - 1, 2)
            current, heals = chosen, Outcome.RIGHT
        elif parts >= len(current):
            break
        else:
            parts = min(2 * parts, len(current))
    return current if heals is Outcome.RIGHT else ()


def _candidates(current: tuple[T, ...], parts: int, heals: Outcome) -> Iterator[tuple[T, ...]]:
    """The parts of a set, then what is left without each."""
    bounds = [len(current) * part // parts for part in range(parts + 1)]
    pairs = list(itertools.pairwise(bounds))
    yield from (current[first:last] for first, last in pairs)
    if heals is Outcome.RIGHT and parts > 2:
        yield from (current[:first] + current[last:] for first, last in pairs)


class _Search(Generic[T]):
    """The outcomes of sets, each tried once."""

    def __init__(self, outcome: Callable[[tuple[T, ...]], Outcome]) -> None:
        self._outcome = outcome
        self._wrong: list[frozenset[T]] = []
        self._known: dict[frozenset[T], Outcome] = {}

    def outcome(self, changes: tuple[T, ...]) -> Outcome:
        key = frozenset(changes)
        if any(key <= wrong for wrong in self._wrong):
            return Outcome.WRONG
        if key not in self._known:
            self._known[key] = self._outcome(changes)
        if self._known[key] is Outcome.WRONG:
            self._wrong.append(key)
        return self._known[key]
