"""A run directory (docs/run-directory.md), opened for reading.

aoti-debug/runs/
  latest -> 20261120-231501-4711
  20261120-231501-4711/  run.json manifest.json journal.bin crumbs.bin tensors/ package.pt2 …
"""

from __future__ import annotations

import gc
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind, SaveStatus
from aoti_debug.base.errors import ArtifactError, RunDirError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories, untrusted_files
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.files.stamped_directories import LATEST
from aoti_debug.package import manifest
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir import breadcrumbs, ranks_directory, recorded_runs, rescued_tensors, run_json
from aoti_debug.runs.rundir.formats import journal, stored_tensor, weight_reference
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey, TensorFile
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_json import EMBEDDED, ExitKind, RunInfo
from aoti_debug.runs.rundir.timeline import Launches, Timeline, assemble

if TYPE_CHECKING:
    from aoti_debug.runs.rundir.run_package import FoundPackage

JOURNAL = "journal.bin"
MANIFEST = "manifest.json"
PACKAGE = "package.pt2"
PACKAGES = "packages"  # the folder of those that a script loaded
WEIGHTS = "weights"  # in it, while the script runs: where their weights lie
RANDOM_INPUTS = "inputs.pt"  # generated for the run
ARCHIVES = (".zip", ".tar.gz", ".tgz")  # of bundles
GPU_CORE = "gpu.core"  # the core dump of a GPU that the driver wrote

_LAUNCH_ID = re.compile(r"(?:(c?)(\d+)\.)?(\d+)\Z")


@dataclass(frozen=True)
class RunDir:
    """A run directory. The journal is read on first use."""

    path: Path
    info: RunInfo
    manifest: Manifest

    @cached_property
    def journal(self) -> journal.Journal | None:
        """The journal; None if the run has none: level 0, or no launch yet.

        Raises:
            RunDirError: it cannot be read.
        """
        path = self.path / JOURNAL
        with _garbage_collection_paused():
            return journal.read(path) if path.exists() and journal.has_begun(path) else None

    @cached_property
    def timeline(self) -> Timeline:
        """The calls, launches and faults of the run, with rescued tensors counted as saved."""
        with _garbage_collection_paused():
            return assemble(self.journal, rescued_tensors.read(self.path), self.manifest)

    def with_info(self, info: RunInfo) -> RunDir:
        """The run with another run.json; nothing else is read again."""
        fresh = replace(self, info=info)
        vars(fresh).update({name: value for name, value in vars(self).items() if name not in vars(fresh)})
        return fresh

    def with_rescued_tensors(self) -> RunDir:
        """The run with the tensors that were rescued since it was opened; its journal is not read again."""
        fresh = replace(self)
        vars(fresh)["journal"] = self.journal  # fills the cached property
        return fresh

    @property
    def launches(self) -> Launches:
        """The launches in the order in which they began."""
        return self.timeline.launches

    @cached_property
    def crumbs(self) -> breadcrumbs.Crumbs | None:
        """The breadcrumbs; None if the run has none."""
        return breadcrumbs.read(self.path)

    @property
    def level(self) -> int:
        """The recording level: the journal's, or without a journal the requested one."""
        return self.journal.header.level if self.journal else self.info.level

    @property
    def has_tensors(self) -> bool:
        """True if it saved a tensor of any launch."""
        if not self.launches.is_measured:
            return False
        return any(saved.path for launch in self.launches for a in launch.args for saved in a.files.values())

    @cached_property
    def package(self) -> Path | None:
        """The package that was run, as `run_package.find` finds it; None if it does not."""
        return self.found_package.package

    @cached_property
    def found_package(self) -> FoundPackage:
        """The package that was run, or why it was not found."""
        from aoti_debug.runs.rundir import run_package  # reads archives; a run is opened without it

        return run_package.find(self.path / PACKAGE, self.manifest, self.info.loaded_from)

    @property
    def required_package(self) -> Path:
        """The package that was run.

        Raises:
            RunDirError: it was not found, or is another one now.
        """
        from aoti_debug.runs.rundir import run_package

        found = self.found_package
        if found.package is None:
            raise RunDirError(
                f"the package of run {self.path.name} was not found: {found.problem}",
                hint=f"ln -s PACKAGE.pt2 {shlex.quote(str(self.path / PACKAGE))}, or build and run the model again",
            )
        if run_package.is_another(found.package, self.manifest):
            raise RunDirError(
                f"{found.package} is another package than that of run {self.path.name}: their wrappers differ",
                hint="build and run the model again",
            )
        return found.package

    @property
    def can_be_repeated(self) -> bool:
        """True if its package is where its link leads, and its inputs are known."""
        return self.info.host != EMBEDDED and (self.path / PACKAGE).exists()

    def require_repeatable(self) -> None:
        """Checks that the run can be repeated with its inputs.

        Raises:
            RunDirError: its package was not found, or another program has passed its own inputs.
        """
        if self.info.host == EMBEDDED:
            raise RunDirError(
                f"run {self.path.name} cannot be repeated: the program that loaded the package passed its own inputs, "
                "which are not recorded",
                hint=f"aoti-debug run {shlex.quote(str(self.package or 'PACKAGE.pt2'))} --inputs FILE makes a run "
                "that can be",
            )
        _ = self.required_package

    @property
    def inputs(self) -> Path | None:
        """The inputs file of the run; None if it used the embedded inputs, or the host program passed its own."""
        paths = (self.path / f"inputs{suffix}" for suffix in (".pt", ".safetensors"))
        return next((path.resolve() for path in paths if path.exists()), None)

    @cached_property
    def is_made_here(self) -> bool:
        """True if the code that it recorded was made on this account, or was run as trusted."""
        from aoti_debug.package.pt2 import trust  # reads archives; a run is opened without it

        return trust.is_made_here(self.manifest, self.info.imports, self.info.libraries)

    @property
    def state(self) -> ExitKind:
        """The kind of end; derived from the journal and the process if run.json does not record it."""
        if self.info.exit.kind not in (ExitKind.RUNNING, ExitKind.CLEAN):
            return self.info.exit.kind
        if self.timeline.ended or self.info.exit.kind is ExitKind.CLEAN:
            return ExitKind.FAULT if self.timeline.faults else ExitKind.CLEAN
        if _is_alive(self.info):
            return ExitKind.RUNNING
        is_in_launch = bool(self.launches.of_status(LaunchStatus.OPEN))  # earlier faults were caught
        return ExitKind.FAULT if self.timeline.faults and not is_in_launch else ExitKind.ABORTED

    def launch(self, id_: str) -> Launch:
        """A launch by its id: "0.3", "c0.1", or "3" for "0.3".

        Raises:
            UsageError: it is not a launch id.
            RunDirError: the run has no such launch.
        """
        key = parse_launch_id(id_)
        launch = self.launches.find(key)
        if launch is None:
            raise RunDirError(f"{self.path.name} has no launch {key}", hint=self._launches_hint())
        return launch

    def find_launch(self, id_: str) -> Launch | None:
        """The launch of an id as `Launch.id` writes it; None if the run has none."""
        launch = self.launches.find(parse_launch_id(id_)) if is_launch_id(id_) else None
        return launch if launch is not None and launch.id == id_ else None

    def launches_of(self, kernel: str) -> tuple[Launch, ...]:
        """The launches of a kernel, by its name or an fnmatch pattern."""
        names = {id_: self.manifest.sites[id_].kernel for id_ in self.launches.site_ids}
        exact = frozenset(id_ for id_, name in names.items() if name == kernel)
        matching = exact or frozenset(id_ for id_, name in names.items() if fnmatchcase(name, kernel))
        return self.launches.of_sites(matching)

    def kernels(self) -> tuple[str, ...]:
        """The names of the launched kernels, in order of their first launch."""
        return tuple(dict.fromkeys(self.manifest.sites[id_].kernel for id_ in self.launches.site_ids))

    def tensor_path(self, saved: TensorFile) -> Path:
        """The path of a saved tensor, or of the reference in its place.

        Raises:
            RunDirError: it was skipped, or its path leads outside of the run directory, or to a link; or it refers to a
                file of this machine, and the run was not made on this account.
        """
        path = self.place_of(saved)
        if problem := self._refused_reference(saved):
            raise RunDirError(problem, hint="make the run again here")
        return path

    def missing_file(self, saved: TensorFile) -> str:
        """The reason why a saved tensor, or a weight that the run refers to, is not to be had; "" if it is.

        Raises:
            RunDirError: its path leads outside of the run directory, or to a link; or the reference is damaged.
        """
        path = self.place_of(saved)
        if saved.status is not SaveStatus.REFERRED:
            return "" if path.is_file() else f"{wording.printable(str(path))} is missing"
        return self._refused_reference(saved) or stored_tensor.missing_weight(path)

    def _refused_reference(self, saved: TensorFile) -> str:
        """The reason why the file is not looked at that a run from elsewhere refers to; "" if it is."""
        path = self.path / saved.path
        if not weight_reference.is_reference(path) or weight_reference.is_beside(path) or self.is_made_here:
            return ""
        shown = wording.first_line(wording.printable(saved.path))
        return f"{shown} refers to a file of this machine, and the run was not made on this account"

    def place_of(self, saved: TensorFile) -> Path:
        """The path of a saved tensor, or of the reference in its place, to name it and not to read it.

        Raises:
            RunDirError: it was skipped, or its path leads outside of the run directory, or to a link.
        """
        if not saved.path:
            raise RunDirError(f"the tensor was not saved: {saved.reason}", hint="aoti-debug run --level 1 saves it")
        try:
            untrusted_files.check(self.path, saved.path)
        except FileNotFoundError:
            pass  # whoever reads it says so
        except OSError as error:
            raise RunDirError(
                f"{wording.first_line(wording.printable(saved.path))} in {self.path} cannot be read: {error.strerror}",
                hint="do not use this run: no runtime writes such a file",
            ) from error
        return self.path / saved.path

    def _launches_hint(self) -> str:
        if not self.launches:
            return "it recorded none"
        return f"it has {len(self.launches)}, {self.launches[0].id} to {self.launches[-1].id}: aoti-debug show"


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Disables garbage collection, which takes half of the time in which a million small objects are created."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_launch_id(text: str) -> LaunchKey:
    """Parses "0.3", "c0.1", or "3" for "0.3".

    Raises:
        UsageError: `text` is neither LAUNCH nor CALL.LAUNCH.
    """
    match = _LAUNCH_ID.match(text)
    if match is None:
        raise UsageError(f"{text!r} is no launch", hint="a launch is CALL.LAUNCH, as 0.3 or c0.1; 3 stands for 0.3")
    constant, call, launch = match.groups()
    return LaunchKey(CallKind.CONSTANT if constant else CallKind.MODEL, int(call or 0), int(launch))


def is_launch_id(text: str) -> bool:
    """True if the text has the form of a launch id."""
    return _LAUNCH_ID.match(text) is not None


def find(name: str | Path | None = None, base: Path | None = None) -> Path:
    """The directory of a run: a path, a name that `recorded_runs.find` knows, or `latest` (also for None).

    Args:
        name: that of a triage or another command stands for the run that it has recorded.
        base: the only directory that runs are looked for in; None for all that commands use.

    Raises:
        RunDirError: there is none, or it is a run of several ranks, of which each has a run of its own.
    """
    found = recorded_runs.find(name) if base is None else recorded_runs.find_in(base, name)
    if found is None:
        raise _no_run(name, base or ResultKind.RUNS.places()[0], runs(base) if base else recorded_runs.names())
    if found.run is None:
        raise RunDirError(
            f"the triage {found.directory} has no run: its model was never called",
            hint=f"aoti-debug report {found.directory} shows it",
        )
    if found.is_of_ranks:
        raise RunDirError(f"{found.run} is a run of several ranks", hint=f"name one of them: {found.run / 'rank0'}")
    return found.run


def refuse_archive(name: str) -> None:
    """Refuses a bundle in the place of a run.

    Raises:
        UsageError: the name is that of an archive.
    """
    if name.endswith(ARCHIVES) and Path(name).is_file():
        extract = shlex.join(["python", "-m", "zipfile" if name.endswith(".zip") else "tarfile", "-e", name, "."])
        raise UsageError(f"{name} is an archive", hint=f"{extract}; then README.txt in its folder says what to type")


def _no_run(name: str | Path | None, base: Path, names: Sequence[str]) -> RunDirError:
    if not names:
        hint = "aoti-debug run PACKAGE.pt2 makes one; --run DIR names another"
        return RunDirError(f"no runs in {base}", hint=hint)
    if name is None or str(name) == LATEST:
        return RunDirError(f"{base / LATEST} is a broken link", hint=f"name a run: --run {base / names[-1]}")
    return RunDirError(f"no run {str(name)!r} in {base}", hint=name_hint(str(name), names))


def is_run(name: str) -> bool:
    """True if `find` finds a run of this name."""
    found = recorded_runs.find(name)
    return found is not None and found.run is not None and not found.is_of_ranks


def find_ranks(name: str | Path | None = None) -> Path | None:
    """The directory of a run of ranks: a path, a name in the directory for runs, `latest` (also for None); or None."""
    found = recorded_runs.find(name)
    return found.run if found is not None and found.is_of_ranks else None


def runs(base: Path) -> tuple[str, ...]:
    """The names of the runs in `base`, oldest first."""
    return stamped_directories.names(base, run_json.NAME)


def name_hint(name: str, known: Iterable[str]) -> str:
    """A hint with the known names that are most similar to an unknown one."""
    import difflib  # only an error needs it

    names = tuple(known)
    lowered = name.lower()
    similar = difflib.get_close_matches(name, names, n=5, cutoff=0.4)
    containing = [n for n in names if lowered in n.lower() and n not in similar]
    listed = [*similar, *containing][:8] or list(names[-8:])
    return "there is " + ", ".join(listed) if listed else "there are none"


def open_run(name: str | Path | None = None, base: Path | None = None) -> RunDir:
    """Opens a run (see `find`).

    Raises:
        RunDirError: there is none, or it is damaged or of another version.
    """
    path = find(name, base)
    info = run_json.read(path)
    try:
        return RunDir(path, info, manifest.from_json(untrusted_files.read_bytes(path, MANIFEST)))
    except OSError as error:
        raise RunDirError(
            f"{path} has no readable {MANIFEST}: {error.strerror}", hint="run the package again"
        ) from error
    except ArtifactError as error:
        raise RunDirError(f"{path / MANIFEST}: {error}", hint=error.hint) from error


def _is_alive(info: RunInfo) -> bool:
    """True if the run's process is alive: a process of its id on this machine that did not start after the run."""
    if info.rank is not None and info.rank.machine != ranks_directory.machine_name():
        return False
    return stamped_directories.is_running_since(info.pid, run_json.started_at(info).timestamp())
