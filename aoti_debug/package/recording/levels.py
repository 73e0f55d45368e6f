"""The recording levels of a run, as users write them: 0 to 3, or "hash"; what else is chosen by name."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base.abi import Level
from aoti_debug.base.errors import UsageError

LEVELS = tuple(Level)
MEANINGS = "0 off, 1 save tensors, 2 print values, 3 record launches, hash: the hash of every tensor, nothing else"
WITH_HASHES = (Level.SAVE, Level.VALUES, Level.HASH)  # what records the hash of every tensor
PHASES = ("before", "after", "both")  # of a launch: when its values are recorded
MAX_FLIGHT = 65536  # launches that the flight recorder keeps
_HASH = "hash"


def number(level: int | str, allowed: Sequence[Level] = LEVELS) -> int:
    """The number of a level that is given as a number (4 for "hash"), or as the text that users write.

    Raises:
        UsageError: it is none of the allowed ones.
    """
    for known in allowed:
        if level == known or str(level) == str(written(known)):
            return known.value
    raise UsageError(f"level {level} is not one of {', '.join(str(written(e)) for e in allowed)}", hint=MEANINGS)


def written(level: int) -> int | str:
    """A level as a user writes it: its number, or "hash"."""
    return _HASH if level == Level.HASH else int(level)
