"""The instrumented packages of the packages that a script loads, built when they are loaded, or found in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from aoti_debug.app.execute.kept_inputs import KeptInputs, PackageUse
from aoti_debug.app.execute.operator_modules import OperatorModules
from aoti_debug.app.torch_compile import cached_build
from aoti_debug.app.torch_compile.cached_build import PACKAGE
from aoti_debug.base import abi, wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.version import __version__
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import Artifact, ArtifactKind
from aoti_debug.package.weights_file import LARGE
from aoti_debug.runs.rundir import run_directory

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_CACHE = "script-package"
_CHANGING = (".cpp", ".data/serialization_id")  # members that differ in two equal compilations
_LINES = "model lines"  # stands for whichever program a package was compiled from
_OWN_CONFIG = "aot_inductor.package"  # that torch adds to those of the user


@dataclass(frozen=True)
class _Compiled:
    """The program that a package was compiled from, and Inductor's settings."""

    program: ExportedProgram
    configs: Mapping[str, Any]


class RecordedPackages:
    """The instrumented packages of one process.

    Args:
        run: the run directory, where they are kept.
        modules: what registers operators in the process; None where nothing does.
        keeps_all: as of KeptInputs.
    """

    def __init__(self, run: Path, modules: OperatorModules | None = None, *, keeps_all: bool = False) -> None:
        self._run = run
        self._modules = modules or OperatorModules()
        self._keeps_all = keeps_all
        self._folder = run / run_directory.PACKAGES
        self._compiled: dict[str, _Compiled] = {}
        self._built: dict[tuple[str, str], Path] = {}
        self._unrecorded: set[str] = set()
        self.reasons: dict[str, str] = {}  # why a package is not recorded, by its path
        self._stems: dict[str, str] = {}
        self._lock = threading.RLock()

    def remember_program(self, package: Any, program: ExportedProgram, configs: Mapping[str, Any]) -> None:
        """Keeps the program that a package was compiled from, for its model lines.

        Args:
            package: a path, or a file in memory.
        """
        with contextlib.suppress(OSError, zipfile.BadZipFile):  # whoever loads it says so
            own = {name: value for name, value in configs.items() if name != _OWN_CONFIG}
            self._compiled[_identity(package)] = _Compiled(program, own)

    def use(self, path: str, model: str) -> PackageUse:
        """The use of the instrumented package of a package; it keeps the inputs of calls."""
        recorded = self.recorded(path, model)
        stem = self._stems.get(recorded)
        if stem is None:
            return PackageUse(recorded)
        return KeptInputs(recorded, self._run, stem, keeps_all=self._keeps_all)

    def recorded(self, path: str, model: str) -> str:
        """The instrumented package of a package; the package itself if it is one, or where none can be built.

        Then a line on stderr says why.
        """
        try:
            with self._lock, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch, about what is done here: the script has no part in it
                package = archive.inspect(os.path.abspath(path))
                if package.kind is ArtifactKind.INSTRUMENTED:
                    self._link(package)
                    return str(package.path)
                return str(self._instrumented(package, model))
        except Exception as error:  # noqa: BLE001 - the script goes on with its own package
            reason = str(error) if isinstance(error, AotiDebugError) else f"{type(error).__name__}: {error}"
            self.reasons[path] = f"{Path(path).name} is not recorded: {wording.first_line(reason)}"
            self._say_once(self.reasons[path])
            return path

    def _link(self, package: Artifact) -> None:
        """Keeps a package that the script has instrumented itself with the others, as a link."""
        name = hashlib.sha256(os.fsencode(package.path)).hexdigest()[:8]
        link = self._folder / f"{package.path.stem}-{name}.pt2"
        self._folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            link.symlink_to(package.path)
        self._stems[str(package.path)] = link.stem

    def _say_once(self, text: str) -> None:
        if text not in self._unrecorded:
            self._unrecorded.add(text)
            _say(text)

    def _instrumented(self, package: Artifact, model: str) -> Path:
        identity = _identity(package.path)
        if (identity, model) not in self._built:
            compiled = self._compiled.pop(identity, None)  # it is needed once, and may be large
            made = self._make(package, model, compiled, identity)
            self._built[identity, model] = made
            self._stems[str(made)] = made.stem
        return self._built[identity, model]

    def _make(self, package: Artifact, model: str, compiled: _Compiled | None, identity: str) -> Path:
        """Builds the instrumented package, or takes it from the cache."""
        user_code = self._user_code()
        key, with_lines = (_key(identity, model, program, user_code) for program in (compiled, _LINES))
        if compiled is None and cache.find(_CACHE, with_lines) is not None:  # another process has compiled it
            key = with_lines
        path = self._folder / f"{package.path.stem}-{key[:8]}.pt2"
        self._folder.mkdir(exist_ok=True)
        if cache.find(_CACHE, key) is not None:
            _say(f"{package.path.name} was instrumented before")
        with changed_environment({"PYTHONPATH": os.pathsep.join([*sys.path, str(self._folder)])}):
            if package.path.stat().st_size < LARGE:
                made = cache.entry(_CACHE, key, lambda work: _build(package, model, compiled, work, user_code))
                atomic_write.link_or_copy(made / PACKAGE, path)
                if compiled is not None:
                    cache.entry(_CACHE, with_lines, lambda work: atomic_write.link_or_copy(path, work / PACKAGE))
            else:
                with cache.scratch() as work:
                    _build(package, model, compiled, work, user_code)
                    atomic_write.link_or_copy(work / PACKAGE, path)
        trust.remember(archive.inspect(path))
        return path

    def _user_code(self) -> UserCode:
        """What registers the operators of the process. It is trusted: the script executes the package anyway."""
        import torch

        libraries = tuple(Path(path) for path in sorted(torch.ops.loaded_libraries))
        return UserCode(self._modules.imports(self._folder), libraries, trusted=True)


def _build(package: Artifact, model: str, compiled: _Compiled | None, folder: Path, user_code: UserCode) -> None:
    """Builds the instrumented package in a folder, without model lines if those cannot be had."""
    name = package.path.name
    _say(f"instrumenting {name}")
    began = time.monotonic()
    options = BuildOptions(
        program=package,
        model=model if model in package.models else "",
        output=folder / PACKAGE,
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


def _key(identity: str, model: str, compiled: _Compiled | str | None, user_code: UserCode) -> str:
    program = compiled or ""
    if isinstance(program, _Compiled):
        program = cached_build.program_key(program.program, program.configs)
    toolchain = Toolchain(find_compiler(), find_torch())
    code = (*user_code.imports, *user_code.library_paths)
    return toolchain.key(__version__, str(abi.ABI_VERSION), identity, model, program, *code)


def _say(text: str) -> None:
    print(f"aoti-debug: {text}", file=sys.stderr, flush=True)
