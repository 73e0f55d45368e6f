"""The state of a search on the disk: an interrupted one is resumable, a finished one begins anew."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.files import json_data


class SearchState(Protocol):
    """The members that the state of every search has: what identifies it, and whether it has come to its end."""

    @property
    def key(self) -> str:
        """The identity of the search."""

    @property
    def is_done(self) -> bool:
        """True if it has come to its end."""


State = TypeVar("State", bound=SearchState)


def interrupted(path: Path, begun: State, format_: int) -> State:
    """The state in a file if it is of the search that has begun and not of a finished one, otherwise `begun`.

    Raises:
        RunDirError: the file is damaged.
    """
    if not path.exists():
        return begun
    try:
        found = json_data.from_data(type(begun), json_data.parse_versioned(path.read_bytes(), format_))
    except (json_data.DamagedJsonError, json_data.OtherFormatError) as error:
        raise RunDirError(f"{path} is damaged: {error}", hint="remove it to begin anew") from error
    return found if found.key == begun.key and not found.is_done else begun
