"""Finds runs by path or name, and the newest that a command has recorded, those of triages and others among them.

A run lies in the folder of the runs, or in the directory of what needed it: a triage, a comparison, a replay, a
profile, a diff, a bisection, or a graph of torch.compile.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.files.stamped_directories import LATEST
from aoti_debug.runs.rundir import ranks_directory, run_json

TRIAGE = "triage.json"
_MARKERS = (run_json.NAME, ranks_directory.NAME)
_INNER = ("runs", "new/runs", "b")  # the folder of the runs of a triage and others; of a profile; of a diff
_COMPARES = ResultKind.COMPARES.value  # the folder of the comparisons of a bisection of settings
SETTINGS = re.compile(r"settings-[0-9a-f]{12}")  # the directory of such a bisection
GRAPHS = "graph[0-9]*"  # the folders of the packages that torch.compile has called
_KINDS = (
    ResultKind.RUNS,
    ResultKind.TRIAGES,
    ResultKind.COMPARES,
    ResultKind.DIFFS,
    ResultKind.REPLAYS,
    ResultKind.PROFILES,
    ResultKind.MEMORY,
    ResultKind.BISECTS,
    ResultKind.COMPILED,
)


@dataclass(frozen=True)
class FoundRun:
    """A directory that a command has made, and the run in it.

    Attributes:
        directory: of the run itself, or of the triage or the other command that recorded it.
        run: the directory of a run, or of a run of ranks; None where a triage has none: its model was never called.
    """

    directory: Path
    run: Path | None

    @property
    def is_of_ranks(self) -> bool:
        """True if it is a run of several ranks."""
        return self.run is not None and stamped_directories.has(self.run, ranks_directory.NAME)

    @property
    def is_of_triage(self) -> bool:
        """True if a triage has recorded it."""
        return stamped_directories.has(self.directory, TRIAGE)

    @property
    def written(self) -> float:
        """The time at which its record was written, in seconds since 1970."""
        record = next((path for path in self._records() if path.is_file()), self.directory)
        return record.stat().st_mtime

    def _records(self) -> Iterator[Path]:
        yield self.directory / TRIAGE
        if self.run is not None:
            yield from (self.run / name for name in _MARKERS)


def find(name: str | Path | None = None) -> FoundRun | None:
    """A run by its path, a name that `aoti-debug list` prints, or `latest` (also for None); None if there is none."""
    if name is None or str(name) == LATEST:
        return newest()
    for path in (Path(name), *_named(Path(name))):
        found = _recorded(path) or _newest_in(path)
        if found is not None:
            return found
    return None


def find_in(base: Path, name: str | Path | None = None) -> FoundRun | None:
    """A run by its path, its name in one directory, or `latest` there (also for None); None if there is none."""
    found = (stamped_directories.find(name, base, marker) for marker in reversed(_MARKERS))
    path = next((path for path in found if path is not None), None)
    return None if path is None else FoundRun(path, path)


def newest() -> FoundRun | None:
    """The newest run of the working directory, if that is a folder of runs; else of all that commands have made."""
    here = _newest_in(Path())
    if here is not None:
        return here
    found = [recorded for base in _bases() if (recorded := _newest_in(base)) is not None]
    return max(found, key=lambda recorded: recorded.written, default=None)


def names() -> tuple[str, ...]:
    """The names that `find` takes, the oldest run first; those of other commands after them, as `triages/NAME`."""
    found = []
    for kind in _KINDS:
        prefix = "" if kind is ResultKind.RUNS else f"{kind.value}/"
        for base in kind.places():
            found += [f"{prefix}{path.name}" for path in _directories(base) if _recorded(path)]
    return tuple(dict.fromkeys(found))


def _bases() -> Iterator[Path]:
    for kind in _KINDS:
        yield from kind.places()


def _named(name: Path) -> Iterator[Path]:
    """The places where a relative name may lie."""
    yield from (base / name for base in _bases())
    folder, *rest = name.parts or ("",)
    kind = next((kind for kind in _KINDS if kind.value == folder), None)
    if kind is not None and rest:
        yield from (base.joinpath(*rest) for base in kind.places())


def _recorded(path: Path) -> FoundRun | None:
    """A directory that is a run, or that a command has recorded one in; None for any other."""
    if any(stamped_directories.has(path, name) for name in _MARKERS):
        return FoundRun(path.resolve(), path.resolve())
    if stamped_directories.has(path, TRIAGE):
        return FoundRun(path.resolve(), _run_of_triage(path))
    with contextlib.suppress(OSError, ValueError):  # a null character, or too long for a file
        for folder in _INNER:
            inner = _newest_run(path / folder)
            if inner is not None:
                return FoundRun(path.resolve(), inner)
        if SETTINGS.fullmatch(path.resolve().name):
            compared = _newest_in(path / _COMPARES)
            return None if compared is None else FoundRun(path.resolve(), compared.run)
        graphs = (FoundRun(path.resolve(), run) for folder in path.glob(GRAPHS) if (run := _newest_run(folder)))
        return max(graphs, key=lambda found: found.written, default=None)
    return None


def _run_of_triage(path: Path) -> Path | None:
    """The run that its record names; None if there is none inside of it: a record that was received may name any.

    The newest one inside of it where the record cannot be read.
    """
    try:
        name = json.loads((path / TRIAGE).read_bytes())["run"]
        run = (path / name).resolve() if isinstance(name, str) else None
    except (OSError, ValueError, TypeError, KeyError):
        run = _newest_run(path / _INNER[0])
    inside = run is not None and run.is_relative_to(path.resolve()) and stamped_directories.has(run, run_json.NAME)
    return run if inside else None


def _newest_in(base: Path) -> FoundRun | None:
    """The directory that `latest` leads to; without the link, the newest by name that holds a run.

    The process of one that has no link was killed before it made it.
    """
    if stamped_directories.has_latest(base):
        linked = stamped_directories.linked(base)
        return None if linked is None else _recorded(linked)
    return next((found for path in reversed(_directories(base)) if (found := _recorded(path)) is not None), None)


def _directories(base: Path) -> list[Path]:
    """The directories in a folder that a command may have made, oldest first."""
    markers = (*_MARKERS, TRIAGE)
    with contextlib.suppress(OSError, ValueError):  # no directory, or a null character
        found = (path for path in base.iterdir() if not path.is_symlink())
        is_ours = (
            (path, _is_named_as_ours(path.name) or any(stamped_directories.has(path, m) for m in markers))
            for path in found
        )
        return sorted(path for path, ours in is_ours if ours)
    return []


def _is_named_as_ours(name: str) -> bool:
    return stamped_directories.is_stamp(name) or SETTINGS.fullmatch(name) is not None


def _newest_run(base: Path) -> Path | None:
    """The newest run, or run of ranks, in the folder of the runs of a command."""
    found = (stamped_directories.find(base, base, name) for name in _MARKERS)
    return next((path for path in found if path is not None), None)
