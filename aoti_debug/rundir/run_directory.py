"""A run directory (docs/run-directory.md), opened for reading.

aoti_debug_runs/
  latest -> 20261120-231501-4711
  20261120-231501-4711/  run.json manifest.json journal.bin crumbs.bin tensors/ package.pt2 …
"""

from __future__ import annotations

import difflib
import gc
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from aoti_debug import manifest
from aoti_debug.abi import CallKind, Variable
from aoti_debug.errors import ArtifactError, RunDirError, UsageError
from aoti_debug.machine import stamped_directories
from aoti_debug.machine.stamped_directories import LATEST
from aoti_debug.manifest import Manifest
from aoti_debug.rundir import breadcrumbs, journal, rescued_tensors, run_json
from aoti_debug.rundir import timeline as launches
from aoti_debug.rundir.records import LaunchKey
from aoti_debug.rundir.run_json import ExitKind, RunInfo
from aoti_debug.rundir.timeline import Launch, SavedTensor, Timeline

BASE = "aoti_debug_runs"
JOURNAL = "journal.bin"
MANIFEST = "manifest.json"
PACKAGE = "package.pt2"
RANDOM_INPUTS = "inputs.pt"  # made for the run

_LAUNCH_ID = re.compile(r"(?:(c?)(\d+)\.)?(\d+)\Z")


@dataclass(frozen=True)
class RunDir:
    """One run. The journal is read when it is first asked for."""

    path: Path
    info: RunInfo
    manifest: Manifest

    @cached_property
    def journal(self) -> journal.Journal | None:
        """None where the run recorded none: level 0, or nothing was launched yet.

        Raises:
            RunDirError: it cannot be read.
        """
        path = self.path / JOURNAL
        with _garbage_collection_paused():
            return journal.read(path) if path.exists() else None

    @cached_property
    def timeline(self) -> Timeline:
        with _garbage_collection_paused():
            found = self.journal.records if self.journal else ()
            return launches.assemble((*found, *rescued_tensors.read(self.path)), self.manifest)

    def with_info(self, info: RunInfo) -> RunDir:
        """The run with another run.json; its journal is not read again."""
        return self._again(replace(self, info=info))

    def with_rescued_tensors(self) -> RunDir:
        """The run with the tensors that were rescued since it was opened; its journal is not read again."""
        return self._again(replace(self))

    def _again(self, fresh: RunDir) -> RunDir:
        vars(fresh)["journal"] = self.journal  # fills the cached property
        return fresh

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.timeline.launches

    @cached_property
    def crumbs(self) -> breadcrumbs.Crumbs | None:
        return breadcrumbs.read(self.path / breadcrumbs.NAME)

    @property
    def level(self) -> int:
        return self.journal.header.level if self.journal else self.info.level

    @property
    def package(self) -> Path | None:
        """The package that was run; None where the run has no link to it or it is gone."""
        link = self.path / PACKAGE
        return link.resolve() if link.exists() else None

    @property
    def inputs(self) -> Path | None:
        """The inputs file that was given; None where the embedded ones were used or the host made them."""
        found = (self.path / f"inputs{suffix}" for suffix in (".pt", ".safetensors"))
        return next((path.resolve() for path in found if path.exists()), None)

    @property
    def state(self) -> ExitKind:
        """How it ended, also where nobody was left to write it down."""
        if self.info.exit.kind not in (ExitKind.RUNNING, ExitKind.CLEAN):
            return self.info.exit.kind
        if self.timeline.ended or self.info.exit.kind is ExitKind.CLEAN:
            return ExitKind.FAULT if self.timeline.faults else ExitKind.CLEAN
        if _is_alive(self.info):
            return ExitKind.RUNNING
        return ExitKind.FAULT if self.timeline.faults else ExitKind.ABORTED

    def launch(self, id_: str) -> Launch:
        """A launch by its id: "0.3", "c0.1", or "3" for "0.3".

        Raises:
            UsageError: it is no id.
            RunDirError: the run has no such launch.
        """
        key = parse_launch_id(id_)
        found = self._by_key.get(key)
        if found is None:
            raise RunDirError(f"{self.path.name} has no launch {key}", hint=self._what_there_is())
        return found

    @cached_property
    def _by_key(self) -> dict[LaunchKey, Launch]:
        return {launch.key: launch for launch in self.launches}

    def launches_of(self, kernel: str) -> tuple[Launch, ...]:
        """Launches of a kernel, by its name or a pattern of fnmatch."""
        exact = tuple(launch for launch in self.launches if launch.kernel == kernel)
        return exact or tuple(launch for launch in self.launches if fnmatchcase(launch.kernel, kernel))

    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels that were launched, in order."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))

    def tensor_path(self, saved: SavedTensor) -> Path:
        """Where a saved tensor lies.

        Raises:
            RunDirError: it was skipped, or the journal names a place outside of the run.
        """
        if not saved.path:
            raise RunDirError(f"the tensor was not saved: {saved.reason}", hint="aoti-debug run --level 1 saves it")
        if saved.path.startswith("/") or ".." in Path(saved.path).parts:
            raise RunDirError(f"the journal names {saved.path!r}, which lies outside of the run")
        return self.path / saved.path

    def _what_there_is(self) -> str:
        if not self.launches:
            return "it recorded none"
        return f"it has {len(self.launches)}, {self.launches[0].id} to {self.launches[-1].id}: aoti-debug show"


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Half of the time of making a million small objects goes into looking for garbage among them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_launch_id(text: str) -> LaunchKey:
    """Raises:
    UsageError: `text` is neither LAUNCH nor CALL.LAUNCH.
    """
    match = _LAUNCH_ID.match(text)
    if match is None:
        raise UsageError(f"{text!r} is no launch", hint="a launch is CALL.LAUNCH, as 0.3 or c0.1; 3 stands for 0.3")
    constant, call, launch = match.groups()
    return LaunchKey(CallKind.CONSTANT if constant else CallKind.MODEL, int(call or 0), int(launch))


def is_launch_id(text: str) -> bool:
    return _LAUNCH_ID.match(text) is not None


def base_directory() -> Path:
    """Where runs are kept unless somebody says otherwise."""
    return Path(os.environ.get(Variable.DIR.value) or BASE)


def find(name: str | Path | None = None, base: Path | None = None) -> Path:
    """The directory of a run: a path, the name of a run in `base`, or `latest` (also for None).

    Raises:
        RunDirError: there is none.
    """
    base = base or base_directory()
    found = stamped_directories.find(name, base, run_json.NAME)
    if found is not None:
        return found
    names = runs(base)
    if not names:
        raise RunDirError(f"no runs in {base}", hint="aoti-debug run PACKAGE.pt2 makes one; --run DIR names another")
    if name is None or str(name) == LATEST:
        raise RunDirError(f"{base / LATEST} leads nowhere", hint=f"name a run: --run {base / names[-1]}")
    raise RunDirError(f"no run {str(name)!r} in {base}", hint=near(str(name), names))


def runs(base: Path) -> tuple[str, ...]:
    """Names of the runs in `base`, oldest first."""
    return stamped_directories.names(base, run_json.NAME)


def near(name: str, known: Iterable[str]) -> str:
    """What `name` may have meant, as a hint."""
    names = tuple(known)
    lowered = name.lower()
    close = difflib.get_close_matches(name, names, n=5, cutoff=0.4)
    inside = [n for n in names if lowered in n.lower() and n not in close]
    found = [*close, *inside][:8] or list(names[-8:])
    return "there is " + ", ".join(found) if found else "there are none"


def open_run(name: str | Path | None = None, base: Path | None = None) -> RunDir:
    """Opens a run (see `find`).

    Raises:
        RunDirError: there is none, or it is damaged or of another version.
    """
    path = find(name, base)
    info = run_json.read(path)
    try:
        return RunDir(path, info, manifest.from_json((path / MANIFEST).read_bytes()))
    except OSError as error:
        raise RunDirError(
            f"{path} has no readable {MANIFEST}: {error.strerror}", hint="run the package again"
        ) from error
    except ArtifactError as error:
        raise RunDirError(f"{path / MANIFEST}: {error}", hint=error.hint) from error


def _is_alive(info: RunInfo) -> bool:
    """Whether the run's process still lives: a process of its number that did not start after it."""
    try:
        fields = Path(f"/proc/{info.pid}/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return False
    if fields[0] in ("Z", "X"):
        return False
    age = uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    since_start = datetime.now().astimezone() - run_json.started_at(info)
    return age >= since_start.total_seconds() - 5
