"""The trials of a search, kept on the disk: one that was interrupted goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.compare.bisect.delta_debugging import T


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
