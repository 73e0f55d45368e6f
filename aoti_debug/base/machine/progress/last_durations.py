"""Remembers how long each step of a piece of work took the last time on this machine, in the cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.files import atomic_write, json_data

_KEPT = 200  # pieces of work


@dataclass(frozen=True)
class _Content:
    seconds: Mapping[str, float] = field(default_factory=dict)


class LastDurations:
    """The durations of the steps of one piece of work. They help a person to wait; without a cache there are none."""

    def __init__(self, *work: str) -> None:
        """Reads them.

        Args:
            work: what identifies the work: the command, and the file that it works on.
        """
        self._path: Path | None = None
        self._seconds: dict[str, float] = {}
        with contextlib.suppress(OSError, json_data.DamagedJsonError, ToolchainError):  # ToolchainError: no cache
            name = cache.key(*(os.fsencode(word).hex() for word in work))  # a path may be any bytes
            self._path = cache.directory() / "durations" / f"{name}.json"
            self._seconds = dict(json_data.parse(_Content, self._path.read_bytes()).seconds)

    def hint(self, step: str) -> str:
        """ " (last time 4.4 s)"; "" for a step that was never done here."""
        seconds = self._seconds.get(step)
        return "" if seconds is None else f" (last time {wording.duration(seconds)})"

    def remember(self, step: str, seconds: float) -> None:
        """Writes the duration of a finished step."""
        self._seconds[step] = seconds
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write.write(self._path, json_data.to_text(_Content(self._seconds)))
            for old in sorted(self._path.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
                old.unlink(missing_ok=True)
