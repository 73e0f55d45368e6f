"""A triage directory: what a triage found, and everything that it was found with.

aoti_debug_triages/
  latest -> 20261120-231501-4711
  20261120-231501-4711/  triage.json package.pt2 runs/ repro/ report/index.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aoti_debug.diagnosis import findings
from aoti_debug.diagnosis.findings import Finding
from aoti_debug.errors import RunDirError, UsageError
from aoti_debug.machine import files, json_data, stamped_directories
from aoti_debug.machine.stamped_directories import LATEST
from aoti_debug.rundir import run_directory

BASE = "aoti_debug_triages"
NAME = "triage.json"
FORMAT = 1
RUNS = "runs"
REPRO = "repro"
REPORT = Path("report") / "index.html"
_MAKES_ONE = "aoti-debug triage MODEL.pt2 makes one"


@dataclass(frozen=True)
class Step:
    """
    Attributes:
        name: "build", "run, level 3".
        seconds: how long it took.
        text: what it found, one line.
    """

    name: str
    seconds: float
    text: str


@dataclass(frozen=True)
class Record:
    """What triage.json says.

    Attributes:
        versions: of what took part, by name: {"torch": "2.13.0"}.
        command: the words of the command line.
        package: the instrumented package; "" where none was built.
        run: the run directory that shows most of the finding; "" where there is none.
    """

    finding: Finding
    steps: tuple[Step, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    package: str = ""
    run: str = ""


@dataclass(frozen=True)
class TriageDir:
    """A triage directory, read."""

    path: Path
    record: Record

    @property
    def finding(self) -> Finding:
        return self.record.finding

    @property
    def run(self) -> Path | None:
        """The run to show the finding with; None where there is none or it is gone."""
        path = Path(self.record.run)
        return path if self.record.run and (path / "run.json").is_file() else None

    @property
    def repro(self) -> Path | None:
        """The repro; None where there is none or it is gone."""
        path = Path(self.finding.repro)
        return path if self.finding.repro and path.exists() else None

    @property
    def runs(self) -> tuple[Path, ...]:
        """Run directories of the triage's trials, oldest first."""
        return tuple(self.path / RUNS / name for name in run_directory.runs(self.path / RUNS))


def create(base: Path) -> Path:
    """Makes a new, empty triage directory in `base`; `latest` leads to it from when it is written.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        return stamped_directories.create(base)
    except OSError as error:
        raise UsageError(f"cannot make a directory in {base}: {error.strerror}", hint="name another one") from error


def write(path: Path, record: Record) -> None:
    """Writes triage.json into a triage directory, whole or not at all, and points `latest` beside it to it.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        files.write(path / NAME, to_json(path, record))
        stamped_directories.link_latest(path)
    except OSError as error:
        raise UsageError(f"cannot write {path / NAME}: {error.strerror}", hint="free some room on the disk") from error


def to_json(path: Path, record: Record) -> str:
    """Paths inside of the triage directory are written relative to it: it may be moved."""
    finding = findings.to_json(record.finding)
    finding["repro"] = _relative(path, record.finding.repro) or None
    data = {
        "format": FORMAT,
        "finding": finding,
        "steps": [asdict(step) for step in record.steps],
        "versions": dict(record.versions),
        "command": list(record.command),
        "package": _relative(path, record.package) or None,
        "run": _relative(path, record.run) or None,
        "repro": finding["repro"],
    }
    return json.dumps(data, indent=1) + "\n"


def open_triage(name: str | Path | None = None, base: Path | None = None) -> TriageDir:
    """Opens a triage (see `find`).

    Raises:
        RunDirError: there is none, or it is damaged or of another version.
    """
    path = find(name, base)
    try:
        return TriageDir(path, _record(path, json_data.parse_versioned((path / NAME).read_bytes(), FORMAT)))
    except OSError as error:
        raise RunDirError(f"{path / NAME}: {error.strerror}", hint=_MAKES_ONE) from error
    except json_data.OtherFormatError as error:
        raise RunDirError(f"{path} has {error}", hint="read it with the version of aoti-debug that wrote it") from error
    except json_data.DamagedJsonError as error:
        raise RunDirError(f"{path / NAME} is damaged: {error}", hint="triage the model again") from error


def find(name: str | Path | None = None, base: Path | None = None) -> Path:
    """The directory of a triage: a path, the name of one in `base`, or `latest` (also for None).

    Raises:
        RunDirError: there is none.
    """
    base = base or Path(BASE)
    found = stamped_directories.find(name, base, NAME)
    if found is not None:
        return found
    wanted = str(name or LATEST)
    names = triages(base)
    if not names:
        raise RunDirError(f"no triages in {base}", hint=_MAKES_ONE)
    raise RunDirError(f"no triage {wanted!r} in {base}", hint=run_directory.name_hint(wanted, names))


def triages(base: Path) -> tuple[str, ...]:
    """Names of the finished triages in `base`, oldest first."""
    return stamped_directories.names(base, NAME)


@dataclass(frozen=True)
class _RecordJson:
    """What is read of triage.json."""

    finding: Mapping[str, Any]
    steps: tuple[Step, ...]
    versions: Mapping[str, str]
    command: tuple[str, ...]
    package: str | None
    run: str | None


def _record(path: Path, data: Mapping[str, Any]) -> Record:
    """Raises:
    DamagedJsonError: `data` is no triage.json.
    """
    from aoti_debug.triage import kinds  # the checks that it lists write to such directories

    found = json_data.from_data(_RecordJson, data)
    finding = findings.from_json(found.finding, kinds.by_value(), "finding")
    return Record(
        finding=replace(finding, repro=_absolute(path, finding.repro)),
        steps=found.steps,
        versions=found.versions,
        command=found.command,
        package=_absolute(path, found.package),
        run=_absolute(path, found.run),
    )


def _relative(path: Path, name: str) -> str:
    """`name` as seen from `path`, if it lies in there; else absolute."""
    if not name:
        return ""
    where, home = Path(name).absolute(), path.absolute()
    return str(where.relative_to(home)) if where.is_relative_to(home) else str(where)


def _absolute(path: Path, name: str | None) -> str:
    return str(path / name) if name else ""
