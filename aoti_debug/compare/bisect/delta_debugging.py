"""The smallest set that does something, by delta debugging; its trials are kept on the disk, so that it can go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data

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


def without_needless(items: Sequence[T], outcome: Callable[[tuple[T, ...]], SetOutcome]) -> tuple[T, ...]:
    """A set that does it and that no item can be taken out of, each of which was tried.

    Unlike `smallest`, it assumes nothing of what a set that does not do it says about its parts, and needs a call of
    `outcome` for each item that stays.

    Args:
        items: a set that does it; the last ones are taken out first.
    """
    current = tuple(items)
    while True:
        smaller = (current[:at] + current[at + 1 :] for at in range(len(current) - 1, -1, -1))
        found = next((some for some in smaller if some and outcome(some) is SetOutcome.YES), None)
        if found is None:
            return current
        current = found


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


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """The members that the state of every search has.

    Attributes:
        key: what identifies the search.
        trials: those that are finished, in order; each search has its own type of them.
        is_done: it has come to its end.
    """

    format: int
    key: str
    trials: tuple[Any, ...] = ()
    is_done: bool = False


State = TypeVar("State", bound=SearchState)


class SearchTrials(Generic[State, T]):
    """The trials of one search, in a file.

    Args:
        begun: the state of a new search; a file of another key or of a finished search begins anew.

    Attributes:
        earlier: how many of the trials an interrupted search had made.

    Raises:
        RunDirError: the file is damaged.
    """

    def __init__(self, path: Path, begun: State) -> None:
        self._path = path
        self._state = _interrupted(path, begun)
        self.earlier = len(self._state.trials)

    @property
    def all(self) -> tuple[T, ...]:
        """The finished trials, in order."""
        return self._state.trials

    def add(self, trial: T) -> None:
        """Adds a trial, and writes it down."""
        self._keep(trials=(*self.all, trial))

    def finish(self) -> None:
        """The next search begins anew."""
        self._keep(is_done=True)

    def _keep(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        atomic_write.write(self._path, json_data.to_text(self._state))


def _interrupted(path: Path, begun: State) -> State:
    """The state in a file if it is of the search that has begun and not of a finished one, otherwise `begun`."""
    if not path.exists():
        return begun
    try:
        found = json_data.from_data(type(begun), json_data.parse_versioned(path.read_bytes(), begun.format))
    except (json_data.DamagedJsonError, json_data.OtherFormatError) as error:
        raise RunDirError(f"{path} is damaged: {error}", hint="remove it to begin anew") from error
    return found if found.key == begun.key and not found.is_done else begun
