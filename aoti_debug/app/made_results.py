"""The directories that commands have made: what each is, when it was made, what it takes on the disk; their deletion.

Only what this tool has made counts: a directory whose name is a date in the folder of its kind, or one that holds the
record of its kind.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.exhaustion import bytes_of
from aoti_debug.base.machine.files import results_home, stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.files.stamped_directories import LATEST
from aoti_debug.repro.repro_files import is_repro
from aoti_debug.runs.diagnosis.findings import Tone
from aoti_debug.runs.rundir import ranks_directory, recorded_runs, run_directory, run_json
from aoti_debug.runs.rundir.run_directory import name_hint
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.triage.results import triage_directory

_DAY = 86400.0  # seconds
_KEYED = {ResultKind.BISECTS: recorded_runs.SETTINGS, ResultKind.MINIFIED: re.compile(r"[0-9a-f]{12}")}
_BUNDLE = re.compile(r"(?:run|triage)_.+\.zip")
_UNREAD = "cannot be read"
_RECORDS = (run_json.NAME, ranks_directory.NAME, triage_directory.NAME)


@dataclass(frozen=True)
class ResultSummary:
    """The verdict of a result, and on what.

    Attributes:
        verdict: its first words: "NOT FINITE", "no fault", "2 ranks"; "" for none.
        text: what follows them.
        model: the file name of the model; "" if it is not known.
        tone: of the verdict; None where there is no verdict on the values.
        can_be_compared: it is a run, or holds one.
    """

    verdict: str = ""
    text: str = ""
    model: str = ""
    tone: Tone | None = None
    can_be_compared: bool = False


@dataclass(frozen=True)
class MadeResult:
    """A directory, or a repro of one file, that a command has made.

    Attributes:
        name: what commands take for it: "triages/20261120-231501-4711"; a path where it lies outside of the home.
        made: when, in seconds since 1970.
    """

    kind: ResultKind
    name: str
    path: Path
    made: float

    @property
    def bytes(self) -> int | None:
        """The bytes that it takes on the disk; None where a part of it cannot be read."""
        try:
            return bytes_of(self.path)
        except OSError:
            return None

    @property
    def is_in_use(self) -> bool:
        """True if the process that makes it, or the model of the run, still runs."""
        found = recorded_runs.find(self.path)
        if found is not None and found.directory == found.run and not found.is_of_ranks:
            try:
                return run_directory.open_run(found.run).state is ExitKind.RUNNING
            except RunDirError:
                return False
        if any(stamped_directories.has(self.path, name) for name in _RECORDS):
            return False
        return stamped_directories.is_stamp(self.path.name) and stamped_directories.is_running_since(
            int(self.path.name.split("-")[2]), self.made
        )

    @property
    def summary(self) -> ResultSummary:
        """The verdict, as far as its records can be read."""
        try:
            return _shown(self.path)
        except RunDirError as error:
            return ResultSummary(_UNREAD, wording.first_line(str(error)))
        except OSError as error:
            return ResultSummary(_UNREAD, error.strerror or str(error))

    @property
    def description(self) -> str:
        """A line on what it shows."""
        shown = self.summary
        between = ": " if shown.text and shown.verdict.islower() else " "
        model = f" ({shown.model})" if shown.model else ""
        return wording.printable(f"{shown.verdict}{between}{shown.text}".strip() + model)


def made_results() -> tuple[MadeResult, ...]:
    """All of them, by kind, the oldest first."""
    return tuple(result for kind in ResultKind for base in kind.places() for result in _in(base, kind))


def _in(base: Path, kind: ResultKind) -> Iterator[MadeResult]:
    is_in_home = results_home.is_home(base.parent) and base.name == kind.value
    try:
        paths = sorted(path for path in base.iterdir() if not path.is_symlink())
    except OSError:
        return
    for path in paths:
        try:
            is_made = _is_made(path, kind, trusts_dates=is_in_home or base == kind.earlier)
        except OSError:  # it cannot be looked into
            is_made = stamped_directories.is_stamp(path.name)
        if is_made:
            yield MadeResult(kind, f"{kind.value}/{path.name}" if is_in_home else str(path), path, _made(path))


def _is_made(path: Path, kind: ResultKind, *, trusts_dates: bool) -> bool:
    """True if this tool has made a directory.

    Args:
        trusts_dates: a date is enough for a name: nothing else lies in this folder.
    """
    if kind is ResultKind.REPROS:
        return is_repro(path)
    if kind is ResultKind.BUNDLES:
        return trusts_dates and _BUNDLE.fullmatch(path.name) is not None and path.is_file()
    if kind in _KEYED and _KEYED[kind].fullmatch(path.name) and path.is_dir():
        return trusts_dates
    is_dated = stamped_directories.is_stamp(path.name) and path.is_dir()
    return is_dated and (trusts_dates or any(stamped_directories.has(path, name) for name in _RECORDS))


def _made(path: Path) -> float:
    if stamped_directories.is_stamp(path.name):
        try:
            return datetime.strptime("-".join(path.name.split("-")[:2]), "%Y%m%d-%H%M%S").timestamp()
        except ValueError:
            pass  # digits that are no date
    return path.lstat().st_mtime


def _require_readable(path: Path) -> None:
    """Raises OSError if a directory, or the record in it, cannot be read: to others it looks as if it held nothing."""
    if path.is_dir():
        for record in set(os.listdir(path)).intersection(_RECORDS):
            os.stat(path / record)


def _shown(path: Path) -> ResultSummary:
    _require_readable(path)
    found = recorded_runs.find(path) if path.is_dir() else None
    if found is not None and found.is_of_triage:
        triage = triage_directory.open_triage(found.directory)
        kind = triage.finding.kind
        model = run_json.model_of(triage.record.command)
        return ResultSummary(kind.heading, triage.finding.what, model, kind.tone, can_be_compared=found.run is not None)
    if found is None or found.run is None:
        graphs = sum(1 for _ in path.glob(recorded_runs.GRAPHS)) if path.is_dir() else 0
        return ResultSummary(wording.pluralize(graphs, "compiled graph") if graphs else "")
    if found.is_of_ranks:
        return ResultSummary(wording.pluralize(len(ranks_directory.read(found.run).ranks), "rank"))
    info = run_json.read(found.run)
    ended = info.exit.kind
    if ended is ExitKind.RUNNING:  # or its process is gone, and nobody has written down how it ended
        ended = run_directory.open_run(found.run).state
    no_fault = "no fault recorded" if info.exit.is_cut_short else "no fault"  # its values are not read here
    return ResultSummary(
        no_fault if ended is ExitKind.CLEAN else ended.value,
        wording.first_line(info.exit.detail) if ended.is_failure else "",
        info.model,
        Tone.BAD if ended.is_failure else None,
        can_be_compared=True,
    )


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
