"""Deletes what commands have made, and nothing else."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import results_home, stamped_directories
from aoti_debug.base.machine.files.stamped_directories import LATEST
from aoti_debug.runs.rundir.run_directory import name_hint
from aoti_debug.views.results.made_results import MadeResult

_DAY = 86400.0  # seconds


@dataclass(frozen=True)
class Unwanted:
    """A choice of what is deleted; without any attribute, everything.

    Attributes:
        names: these alone, as `aoti-debug list` prints them, or their last part; () for all.
        older_than: days since they were made; 0 for no limit.
        keep: how many of each kind stay, the newest.
    """

    names: tuple[str, ...] = ()
    older_than: float = 0.0
    keep: int = 0


def unwanted(results: Sequence[MadeResult], wanted: Unwanted) -> tuple[MadeResult, ...]:
    """The results that are to be deleted.

    Raises:
        UsageError: there is none of such a name.
    """
    if wanted.names:
        return tuple(dict.fromkeys(result for name in wanted.names for result in _named(results, name)))
    latest_made = time.time() - wanted.older_than * _DAY
    newest: set[MadeResult] = set()
    for kind in {result.kind for result in results}:
        of_kind = sorted((result for result in results if result.kind is kind), key=lambda result: result.made)
        newest.update(of_kind[-wanted.keep :] if wanted.keep else ())
    return tuple(result for result in results if result not in newest and result.made <= latest_made)


def _named(results: Sequence[MadeResult], name: str) -> list[MadeResult]:
    path = Path(name).resolve()
    found = [result for result in results if name in (result.name, result.path.name) or path == result.path.resolve()]
    if not found:
        known = [result.name for result in results]
        raise UsageError(f"{name!r} is nothing that aoti-debug has made here", hint=name_hint(name, known))
    return found


def delete(results: Iterable[MadeResult]) -> None:
    """Deletes results, then links that lead nowhere, and folders and homes that are empty.

    Raises:
        OSError: one cannot be deleted.
    """
    bases: dict[Path, None] = {}
    for result in results:
        if result.path.is_dir():
            shutil.rmtree(result.path)
        else:
            result.path.unlink()
        bases[result.path.parent] = None
    for base in bases:
        _tidy(base)


def _tidy(base: Path) -> None:
    for path in base.iterdir():
        if path.is_symlink() and not path.exists() and (path.name == LATEST or path.name.startswith(".ranks-")):
            path.unlink()
    remaining = sorted(path.name for path in base.iterdir() if stamped_directories.is_stamp(path.name))
    if remaining and not os.path.lexists(base / LATEST):
        stamped_directories.link_latest(base / remaining[-1])
    if not any(base.iterdir()):
        base.rmdir()
        results_home.remove_empty(base.parent)
