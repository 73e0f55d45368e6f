"""The instrumented packages of the models that a script loads, built when they are loaded, or found in the cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from aoti_debug.app.execute import bare_libraries
from aoti_debug.app.execute.kept_inputs import KeptInputs, PackageUse
from aoti_debug.app.execute.operator_modules import OperatorModules
from aoti_debug.app.execute.script_environment import Shared
from aoti_debug.base import abi, terminal_cells, wording
from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.version import own_sources
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import AOTINDUCTOR, Artifact, ArtifactKind
from aoti_debug.package.weights_file import LARGE
from aoti_debug.runs.run import load_model
from aoti_debug.runs.run.load_model import Interposer
from aoti_debug.runs.rundir import run_directory

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_Result = TypeVar("_Result")
PROGRAMS = "programs"  # among the packages: of those that were compiled, by hashes of their code
_CACHE = "script-package"
_CHANGING = (".cpp", ".data/serialization_id")  # members that differ in two equal compilations
_LINES = "model lines"  # stands for whichever program a package was compiled from
_OWN_CONFIGS = ("aot_inductor.package", "aot_inductor.output_path")  # of the files that torch writes, not of kernels
_HASH = re.compile(r"c[a-z2-7]{51}(\.wrapper)?")  # the name of a package that was given none
_SHOWN_OF_HASH, _LONGEST_NAME = 8, 40  # characters
_CODE = (".so", ".cpp")  # of a package; a package of sources has no libraries


@dataclass(frozen=True)
class _Compiled:
    """The program that a package was compiled from, or a file of it; Inductor's settings; a hash of both."""

    program: ExportedProgram | Path
    configs: Mapping[str, Any]
    key: str


class _InterposedInputs(KeptInputs):
    """Keeps the inputs of a model without source, whose calls are interposed. Arguments: as of KeptInputs."""

    def __init__(self, path: str, run: Path, package: str, interposer: Interposer, *, keeps_all: bool) -> None:
        super().__init__(path, run, package, keeps_all=keeps_all)
        self.package = package
        self._interposer = interposer

    def call(self, run: Callable[..., _Result], inputs: Any, *arguments: Any, **keywords: Any) -> _Result:
        """Calls the model."""
        return super().call(functools.partial(self._interposer.recorded, run), inputs, *arguments, **keywords)


class RecordedPackages:
    """The instrumented packages of one process.

    Args:
        run: the run directory, where they are kept.
        modules: what registers operators in the process.
        keeps_all: as of KeptInputs.
    """

    def __init__(
        self, run: Path, modules: OperatorModules, *, keeps_all: bool = False, shared: Shared = Shared.NOTHING
    ) -> None:
        self._run = run
        self._modules = modules
        self._keeps_all = keeps_all
        self._shared = shared
        self._folder = run / run_directory.PACKAGES
        self._sources: dict[str, Callable[[], _Compiled]] = {}  # by hashes of what was compiled
        self._packaged: dict[str, Path] = {}  # the packages of libraries, by their hashes
        self._built: dict[tuple[str, str], Path] = {}
        self.reasons: dict[str, str] = {}  # why a package is not recorded, by its path
        self._stems: dict[str, str] = {}
        self._interposed_use: _InterposedInputs | None = None
        self._lock = threading.RLock()

    def remember_program(
        self, compiled: Any, program: Callable[[], ExportedProgram], configs: Mapping[str, Any]
    ) -> None:
        """Keeps the program that a package or a library was compiled from, for its model lines.

        Args:
            compiled: a path, a file in memory, or a list of files.
            program: is called when it is needed.
        """
        with contextlib.suppress(OSError, zipfile.BadZipFile):  # whoever loads it says so
            own = {name: configs[name] for name in configs if name not in _OWN_CONFIGS}
            source = functools.partial(_compiled_from, program, own)
            self._sources |= dict.fromkeys(_codes(compiled), source)
            if self._shared is Shared.PACKAGE and isinstance(compiled, str):
                self.recorded(compiled)
            elif self._shared is Shared.PROGRAM and isinstance(compiled, str | Path):
                self._keep(Path(compiled), source)

    def use(self, path: str, model: str) -> PackageUse:
        """The use of the instrumented package of a package, or of a library; it keeps the inputs of calls.

        One without the source of its wrapper is loaded as it is, and its calls are interposed.
        """
        return self._attempted(path, lambda: self._use(path, model)) or PackageUse(path)

    def _use(self, path: str, model: str) -> PackageUse:
        package = archive.inspect(self._package(path))
        if model in package.models and package.is_stripped(model):
            return self._interposed(path, package, model)
        recorded = self._recorded(package, model)
        return KeptInputs(recorded, self._run, self._stems[recorded], keeps_all=self._keeps_all)

    def recorded(self, path: str, model: str = "model") -> str:
        """The instrumented package of a package; the package itself if it is one, or where none can be built.

        Then a line on stderr says why.
        """
        return self._attempted(path, lambda: self._recorded(archive.inspect(self._package(path)), model)) or path

    def _recorded(self, package: Artifact, model: str) -> str:
        if package.kind is ArtifactKind.INSTRUMENTED:
            self._link(package)
            return str(package.path)
        return str(self._instrumented(package, model))

    def _attempted(self, path: str, work: Callable[[], _Result]) -> _Result | None:
        """The result of work on a package; None where it fails, and a line on stderr says why."""
        try:
            with self._lock, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch, about what is done here: the script has no part in it
                return work()
        except Exception as error:  # noqa: BLE001 - the script goes on with its own package
            reason = str(error) if isinstance(error, AotiDebugError) else f"{type(error).__name__}: {error}"
            said = f"{_shown(Path(path))} is not recorded: {wording.first_line(reason)}"
            if said not in self.reasons.values():
                _say(said)
            self.reasons[path] = said
            return None

    def _interposed(self, path: str, package: Artifact, model: str) -> PackageUse:
        """The use of a model whose calls are interposed. If it is loaded several times, these are calls of one model.

        Raises:
            UsageError: another one is: a process has one, as the functions that a library calls are replaced once.
        """
        stem = f"{_stem(package.path)}-{_digest(package.path)[:8]}"
        if self._interposed_use is None:
            from aoti_debug.app.execute import failed_call  # most packages have a source
            from aoti_debug.runs.run import interposer

            interposition = interposer.prepare(package, model)
            device = interposition.manifest.device
            kept = self._folder / f"{stem}.pt2"
            self._folder.mkdir(exist_ok=True)
            atomic_write.link_or_copy(package.path, kept)
            atomic_write.write(failed_call.manifest_beside(kept), interposition.text)
            trust.remember_run(interposition.manifest)
            recorder = Interposer(str(interposition.front), str(interposition.recorder), device)
            self._interposed_use = _InterposedInputs(path, self._run, stem, recorder, keeps_all=self._keeps_all)
            _say(f"{Path(path).name}: {interposition.manifest.without_source}")
        elif self._interposed_use.package != stem:
            raise UsageError(f"it has no source, and a process records one such model: {self._interposed_use.package}")
        return self._interposed_use

    def _package(self, path: str) -> str:
        """The package at a path; of a library, one that is made of it and of its sources."""
        path = os.path.abspath(path)
        if not bare_libraries.is_library(path):
            return path
        digest = _digest(path)
        if digest not in self._packaged:
            self._packaged[digest] = bare_libraries.packaged(Path(path), self._folder)
        return str(self._packaged[digest])

    def _link(self, package: Artifact) -> None:
        """Keeps a package that the script has instrumented itself with the others, as a link."""
        name = hashlib.sha256(os.fsencode(package.path)).hexdigest()[:8]
        link = self._folder / f"{_stem(package.path)}-{name}.pt2"
        self._folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            link.symlink_to(package.path)
        self._stems[str(package.path)] = link.stem
        self._tell_weights(package)

    def _instrumented(self, package: Artifact, model: str) -> Path:
        identity = _identity(package.path)
        if (identity, model) not in self._built:
            with self.operators() as user_code:
                made = self._make(package, model, identity, user_code)
            self._built[identity, model] = made
            self._stems[str(made)] = made.stem
        return self._built[identity, model]

    def _compiled(self, package: Artifact, model: str) -> _Compiled | None:
        """The program of a model, given away as it may be large; None where it is not known, or cannot be exported."""
        known = self._sources
        codes = _codes(package.path, model) if known or (self._folder / PROGRAMS).exists() else []
        source = next((known[code] for code in codes if code in known), None) or self._kept(codes)
        if source is None:
            return None
        self._sources = {code: other for code, other in known.items() if other is not source}
        try:
            return source()
        except Exception as error:  # noqa: BLE001 - of any kind, from export
            _say(f"{_shown(package.path)} has no model lines: {wording.first_line(str(error))}")
            return None

    def _keep(self, package: Path, source: Callable[[], _Compiled]) -> None:
        """Keeps the program of a package for other processes, unless it is large, or cannot be saved."""
        if bare_libraries.is_library(package) or package.stat().st_size >= LARGE:
            return
        import torch

        from aoti_debug.instrument.frontend.protocol import caller_settings

        file = self._folder / PROGRAMS / f"{_codes(package)[0]}.pt2"
        file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(Exception), warnings.catch_warnings():  # of what only this process has: it goes on
            warnings.simplefilter("ignore")
            compiled = source()
            described = json.dumps([caller_settings.with_assigned(compiled.configs), compiled.key])
            torch.export.save(compiled.program, own := file.with_name(f"{os.getpid()}-{file.name}"))
            own.replace(file)  # whole: another process may read an equal one
            atomic_write.write(file.with_suffix(".json"), described)

    def _kept(self, codes: Sequence[str]) -> Callable[[], _Compiled] | None:
        """What another process keeps of the code of a package; None if none does."""
        files = (self._folder / PROGRAMS / f"{code}.json" for code in codes)
        file = next(filter(Path.exists, files), None)
        return None if file is None else lambda: _Compiled(file.with_suffix(".pt2"), *json.loads(file.read_text()))

    def _make(self, package: Artifact, model: str, identity: str, user_code: UserCode) -> Path:
        """Builds the instrumented package, or takes it from the cache."""
        compiled = self._compiled(package, model)
        programs = ("" if compiled is None else compiled.key, _LINES)
        key, with_lines = (_key(identity, model, program, user_code) for program in programs)
        if compiled is None and cache.find(_CACHE, with_lines) is not None:  # another process has compiled it
            key = with_lines
        path = self._folder / f"{_stem(package.path)}-{key[:8]}.pt2"
        self._folder.mkdir(exist_ok=True)
        if cache.find(_CACHE, key) is not None:
            _say(f"{_shown(package.path)} was instrumented before")
        if package.path.stat().st_size < LARGE:
            entry = cache.entry(_CACHE, key, lambda work: _build(package, model, compiled, work, user_code))
            atomic_write.link_or_copy(entry / run_directory.PACKAGE, path)
            if compiled is not None:  # the newest counts: its lines are those of today
                link = functools.partial(_link, path)
                link(cache.entry(_CACHE, with_lines, link))
        else:
            with cache.scratch() as work:
                _build(package, model, compiled, work, user_code)
                atomic_write.link_or_copy(work / run_directory.PACKAGE, path)
        trust.remember(made := archive.inspect(path))
        self._tell_weights(made)
        return path

    def _tell_weights(self, package: Artifact) -> None:
        """Tells the runtime where the package's weights lie: in it, and it is kept with the run."""
        (folder := self._folder / run_directory.WEIGHTS).mkdir(exist_ok=True)
        load_model.write_table(folder, package, package.manifest())

    @contextlib.contextmanager
    def operators(self) -> Iterator[UserCode]:
        """The code that registers the operators of the process, in an environment in which other processes find it."""
        import torch

        libraries = tuple(Path(path) for path in sorted(torch.ops.loaded_libraries))
        with changed_environment({"PYTHONPATH": os.pathsep.join([*sys.path, str(self._folder)])}):
            yield UserCode(self._modules.imports(self._folder), libraries, trusted=True)  # the script runs it anyway


def _build(package: Artifact, model: str, compiled: _Compiled | None, folder: Path, user_code: UserCode) -> None:
    """Builds the instrumented package in a folder, without model lines if those cannot be had."""
    from aoti_debug.instrument.builder import build as builder  # most are found in the cache
    from aoti_debug.instrument.builder.options import BuildOptions

    name = _shown(package.path)
    _say(f"instrumenting {name}")
    began = time.monotonic()
    options = BuildOptions(
        program=package,
        model=model if model in package.models else "",
        output=folder / run_directory.PACKAGE,
        user_code=user_code,
    )
    if compiled is None:
        summary = builder.build_report(options)
    else:
        try:
            summary = builder.build_report(
                replace(options, exported=compiled.program, inductor_configs=compiled.configs)
            )
        except AotiDebugError as error:
            _say(f"{name} has no model lines: {wording.first_line(str(error))}")
            summary = builder.build_report(options)
    sites = wording.pluralize(len(summary.manifest.sites), "launch site")
    _say(f"{name}: {sites}, {wording.duration(time.monotonic() - began)}")


def _link(package: Path, folder: Path) -> None:
    atomic_write.link_or_copy(package, folder / run_directory.PACKAGE)


def _identity(package: str | Path | IO[bytes]) -> str:
    """A hash of the content of a package, the same for two equal compilations.

    The names of its sources hold hashes of their content.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    digest = hashlib.sha256()
    with zipfile.ZipFile(package) as file:
        for member in sorted(file.namelist()):
            name = member.partition("/")[2]
            digest.update(f"{name}\0".encode())
            if not name.endswith(_CHANGING):
                digest.update(file.read(member))
    return digest.hexdigest()


def _codes(compiled: Any, model: str = "") -> list[str]:
    """Hashes of the code in a package, in a library, or in a list of files.

    Args:
        model: of a package; "" for all of its models.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    if isinstance(compiled, list):
        files = [file for file in compiled if isinstance(file, str)]
        named = ([file for file in files if file.endswith(suffix)] for suffix in _CODE)
        return [_digest(file) for file in next(filter(None, named), [])]
    if isinstance(compiled, str | Path) and bare_libraries.is_library(compiled):
        return [_digest(compiled)]
    if not isinstance(compiled, str | Path) and not hasattr(compiled, "read"):
        return []  # a graph, as torch returns it in some modes
    folder = f"/{AOTINDUCTOR}{model}"
    with zipfile.ZipFile(compiled) as file:
        members = [name for name in file.namelist() if folder in name]
        named = ([name for name in members if name.endswith(suffix)] for suffix in _CODE)
        return [hashlib.sha256(file.read(name)).hexdigest() for name in next(filter(None, named), [])]


def _digest(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def _compiled_from(program: Callable[[], ExportedProgram], configs: Mapping[str, Any]) -> _Compiled:
    from aoti_debug.app.torch_compile import cached_build  # most packages were compiled before

    made = program()
    return _Compiled(made, configs, cached_build.program_key(made, configs))


def _key(identity: str, model: str, program: str, user_code: UserCode) -> str:
    toolchain = Toolchain(find_compiler(), find_torch())
    code = (*user_code.imports, *user_code.library_paths)
    return toolchain.key(own_sources(), str(abi.ABI_VERSION), identity, model, program, *code)


def _shown(package: Path) -> str:
    """The name of a package, within a line."""
    return terminal_cells.shorten_middle(package.name, _LONGEST_NAME)


def _stem(package: Path) -> str:
    """The name of a package without its suffix, of one that torch has named by a hash the beginning."""
    return package.stem[:_SHOWN_OF_HASH] if _HASH.fullmatch(package.stem) else package.stem


def _say(text: str) -> None:
    print(f"aoti-debug: {text}", file=sys.stderr, flush=True)
