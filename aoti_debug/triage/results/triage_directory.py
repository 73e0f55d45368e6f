"""A triage directory: the finding of a triage, its package, runs, repro and report.

aoti-debug/triages/
  latest -> 20261120-231501-4711
  20261120-231501-4711/  triage.json package.pt2 runs/ repro/ report/index.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data, stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.files.stamped_directories import LATEST
from aoti_debug.base.machine.steps import Step
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.rundir import recorded_runs, run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.results import finding_kinds

NAME = recorded_runs.TRIAGE
FORMAT = 1
RUNS = "runs"
REPRO = "repro"
REPORT = Path("report") / "index.html"
_MAKES_ONE = "aoti-debug triage MODEL.pt2 makes one"


@dataclass(frozen=True)
class Record:
    """The contents of triage.json.

    Attributes:
        versions: of aoti-debug, torch and so on, by name: {"torch": "2.13.0"}.
        command: the words of the command line.
        package: the instrumented package; "" where none was built.
        run: the run directory that shows most of the finding; "" where there is none.
        between: seconds of the work beside the steps, by name.
    """

    finding: Finding
    steps: tuple[Step, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    package: str = ""
    run: str = ""
    between: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TriageDir:
    """A triage directory, read.

    Attributes:
        opened: runs of it that are read already, by their directories.
    """

    path: Path
    record: Record
    opened: Mapping[Path, RunDir] = field(default_factory=dict, compare=False)

    def open_run(self, path: Path) -> RunDir:
        """Opens one of its runs, unless that is open.

        Raises:
            RunDirError: it is damaged.
        """
        return self.opened.get(path) or run_directory.open_run(path)

    @property
    def finding(self) -> Finding:
        """The triage's finding."""
        return self.record.finding

    @property
    def run(self) -> Path | None:
        """The run to show the finding with; None where there is none, it is gone, or outside of the directory."""
        path = Path(self.record.run)
        return path if self.record.run and self._is_inside(path) and (path / "run.json").is_file() else None

    def _is_inside(self, path: Path) -> bool:
        """True if a path of the record leads into this directory; one that was received may name any."""
        return path.resolve().is_relative_to(self.path.resolve())

    @property
    def repro(self) -> Path | None:
        """The repro; None where there is none or it is gone."""
        path = Path(self.finding.repro)
        return path if self.finding.repro and path.exists() else None

    @property
    def runs(self) -> tuple[Path, ...]:
        """Run directories of the triage's trials, oldest first."""
        folder = self.path / RUNS
        return tuple(folder / name for name in run_directory.runs(folder)) if self._is_inside(folder) else ()


def create(base: Path) -> Path:
    """Makes a new, empty triage directory in `base`; `write` points `latest` to it.

    Raises:
        UsageError: it cannot be made.
    """
    return stamped_directories.make(base, "name another one")


def write(path: Path, record: Record) -> None:
    """Writes triage.json into a triage directory, whole or not at all, and points the link `latest` to the directory.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        atomic_write.write(path / NAME, to_json(path, record))
        stamped_directories.link_latest(path)
    except OSError as error:
        raise UsageError(f"cannot write {path / NAME}: {error.strerror}", hint="free some room on the disk") from error


def to_json(path: Path, record: Record) -> str:
    """The text of triage.json; paths inside the triage directory are relative to it, as it may be moved."""
    finding = findings.to_json(findings.map_repros(record.finding, lambda repro: _relative(path, repro)))
    data = {
        "format": FORMAT,
        "finding": finding,
        "steps": record.steps,
        "between": dict(record.between),
        "versions": dict(record.versions),
        "command": list(record.command),
        "package": _relative(path, record.package) or None,
        "run": _relative(path, record.run) or None,
        "repro": finding["repro"],
    }
    return json_data.to_text(data) + "\n"


def open_triage(name: str | Path | None = None, base: Path | None = None) -> TriageDir:
    """Opens a triage (see `find`).

    Raises:
        RunDirError: there is none, or it is damaged or of another version.
    """
    path = find(name, base)
    try:
        record = json_data.read_file(path, NAME, partial(_record, path), format_=FORMAT, hint="triage the model again")
    except FileNotFoundError as error:
        raise RunDirError(f"{path / NAME}: {error.strerror}", hint=_MAKES_ONE) from error
    return TriageDir(path, record)


def find(name: str | Path | None = None, base: Path | None = None) -> Path:
    """The directory of a triage: a path, the name of one in `base`, or `latest` (also for None).

    Raises:
        RunDirError: there is none.
    """
    bases = ResultKind.TRIAGES.places() if base is None else (base,)
    found = (stamped_directories.find(name, folder, NAME) for folder in bases)
    path = next((path for path in found if path is not None), None)
    if path is not None:
        return path
    shown = str(name or LATEST)
    names = tuple(known for folder in bases for known in triages(folder))
    if not names:
        raise RunDirError(f"no triages in {bases[0]}", hint=_MAKES_ONE)
    raise RunDirError(f"no triage {shown!r} in {bases[0]}", hint=run_directory.name_hint(shown, names))


def launch_of_finding(name: str | Path | None) -> str:
    """The launch that the finding of a triage is laid to, "0.3"; "" if that names none, or for another run.

    Args:
        name: of the run or the triage; None for the newest.

    Raises:
        RunDirError: the triage is damaged.
    """
    found = recorded_runs.find(name)
    if found is None or not found.is_of_triage:
        return ""
    where = open_triage(found.directory).finding.where
    return "" if where is None else where.launch


def triages(base: Path) -> tuple[str, ...]:
    """Names of the finished triages in `base`, oldest first."""
    return stamped_directories.names(base, NAME)


@dataclass(frozen=True)
class _RecordJson:
    """The fields of triage.json that are read."""

    finding: Mapping[str, Any]
    steps: tuple[Step, ...]
    versions: Mapping[str, str]
    command: tuple[str, ...]
    package: str | None
    run: str | None
    between: Mapping[str, float] = field(default_factory=dict)


def _record(path: Path, data: Mapping[str, Any]) -> Record:
    """The contents of a triage.json.

    Raises:
        DamagedJsonError: `data` is no triage.json.
    """
    fields = json_data.from_data(_RecordJson, data)
    finding = findings.from_json(fields.finding, finding_kinds.by_value(), "finding")
    return Record(
        finding=findings.map_repros(finding, lambda repro: _absolute(path, repro)),
        steps=fields.steps,
        versions=fields.versions,
        command=fields.command,
        package=_absolute(path, fields.package),
        run=_absolute(path, fields.run),
        between=fields.between,
    )


def _relative(path: Path, name: str) -> str:
    """`name` relative to `path`, if it is inside it; else absolute."""
    if not name:
        return ""
    file, directory = Path(name).absolute(), path.absolute()
    return str(file.relative_to(directory)) if file.is_relative_to(directory) else str(file)


def _absolute(path: Path, name: str | None) -> str:
    return str(path / name) if name else ""
