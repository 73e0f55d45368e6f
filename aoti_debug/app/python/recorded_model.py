"""A package that a loader has loaded while packages are recorded, and its runs: one in each block that calls it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from aoti_debug.app.execute import failed_call as failed_calls
from aoti_debug.app.execute import kept_inputs
from aoti_debug.app.execute.failed_call import FailedCall
from aoti_debug.app.execute.kept_inputs import KeptInputs, PackageUse
from aoti_debug.base.abi import Variable
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.files import atomic_write, stamped_directories
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.native import elf
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.run import configuration, load_model, runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import run_directory, run_json
from aoti_debug.runs.rundir.run_json import EMBEDDED, Exit, ExitKind

_Result = TypeVar("_Result")
_END = "aoti_debug_end_run"  # runtime_shims/aoti_debug.h
_OFF = {Variable.LEVEL.value: "0"}
_ENVIRONMENT = threading.RLock()  # it belongs to the whole process; the runtime reads it in the first call of a run


class ModelRun:
    """The run of a package in one block; its directory is there from the beginning.

    Args:
        base: where the directory is made.
        options: of what is recorded, of which package.
        manifest: of the package.
        keeps_all: as of KeptInputs.

    Raises:
        UsageError: the directory cannot be made.
    """

    def __init__(self, base: Path, options: RunOptions, manifest: Manifest, *, keeps_all: bool) -> None:
        self.path = stamped_directories.make(base, "out=DIR names another one")
        self.package = options.package
        self.inputs = KeptInputs(str(self.package), self.path, self.package.stem, keeps_all=keeps_all)
        self._keeps_all = keeps_all
        self.is_over = False  # the runtime records nothing more of it
        self._exit = Exit(ExitKind.CLEAN)
        info = configuration.run_info(manifest, options)
        self._info = replace(info, command=tuple(sys.orig_argv), host=EMBEDDED, torch_settings=torch_settings.capture())
        run_json.write(self._info, self.path)
        (self.path / run_directory.PACKAGE).symlink_to(self.package)
        self.variables = configuration.recording_variables(self.path, options, self._info.level)
        if manifest.packed is not None:  # the run refers to weights in it
            weights = self._keep_package() / run_directory.WEIGHTS
            weights.mkdir()
            load_model.write_table(weights, archive.inspect(self.path / run_directory.PACKAGE), manifest)
            self.variables[Variable.WEIGHTS.value] = str(weights)

    def _keep_package(self) -> Path:
        """Keeps the package with the run, where that is not done; returns its folder."""
        kept = Path(run_directory.PACKAGES) / self.package.name
        folder = self.path / kept.parent
        if not folder.exists():
            folder.mkdir()
            atomic_write.link_or_copy(self.package, self.path / kept)
            atomic_write.write_link(self.path / run_directory.PACKAGE, str(kept))
        return folder

    @property
    def has_begun(self) -> bool:
        """True if the runtime records it, or has done so."""
        return (self.path / run_directory.MANIFEST).exists()

    def failed(self, error: BaseException) -> None:
        """Takes down the first exception of a call, or the error of a device that appeared after it."""
        if self._exit.kind is not ExitKind.CLEAN:
            return
        name, code = type(error).__name__, getattr(error, "error_code", None)
        kind = ExitKind.FAULT if isinstance(error, Exception) else ExitKind.ABORTED
        detail = f"{name}: {error}".removesuffix(": ")
        self._exit = Exit(kind, detail, exception=name, code=code if isinstance(code, int) else None)

    def so_far(self) -> DiagnosedRun:
        """The run as it is now: still going on, unless a call of it has failed.

        Raises:
            RunDirError: its records cannot be read.
        """
        run = run_directory.open_run(self.path)
        is_failed = self._exit.kind is not ExitKind.CLEAN
        return DiagnosedRun(run.with_info(replace(run.info, exit=self._exit)) if is_failed else run)

    def finish(self) -> DiagnosedRun:
        """Writes down how it ended, and keeps the package with it.

        Raises:
            OSError: the package cannot be kept.
            RunDirError: its records cannot be read.
        """
        folder = self._keep_package()
        shutil.rmtree(folder / run_directory.WEIGHTS, ignore_errors=True)
        for module in self.package.parent.glob("*.py"):  # of operators of the program itself
            shutil.copy(module, folder)
        return runner.finish(self.path, replace(self._info, exit=self._exit))

    def call_in_question(self, ended: DiagnosedRun) -> FailedCall | None:
        """The call with a fault, the first one whose results are known not to be finite, or else the last one.

        Its inputs are kept, those of other calls are deleted. None where no inputs were to be kept and nothing failed.
        """
        called = failed_calls.called_packages(self.path, [ended])
        found = failed_calls.failed_call(called) if self._keeps_all or ended.verdict is not None else None
        kept_inputs.delete(self.path)
        return found

    def remove(self) -> None:
        """Deletes its directory."""
        stamped_directories.remove(self.path, None)


class RecordedModel(PackageUse):
    """The instrumented package of one loader.

    Args:
        package: the instrumented package.
        run: the run of this model in the block that is in force, which it may begin; None outside of all blocks.
    """

    def __init__(self, package: Path, run: Callable[[RecordedModel], ModelRun | None]) -> None:
        super().__init__(str(package))
        self.package = package
        self.manifest = archive.inspect(package).manifest()
        self._run = run
        self._told: tuple[ModelRun | None, int] | None = None  # the run that the runtime knows of, and the process
        self._calls = 0
        self._lock = threading.Lock()
        self._loader: Callable[[], Any] | None = None
        self._end_run: Any = None

    def loaded(self, loader: Any) -> None:
        """Remembers the loader, which lives no longer for it."""
        self._loader = weakref.ref(loader)

    def change(self, work: Callable[[], _Result]) -> _Result:
        """Loads the package, or changes its weights; what is launched for that belongs to the run of the block."""
        with self._environment(self._run(self)):
            if self._loader is not None:
                return work()
            before = elf.loaded_libraries()
            result = work()
            self._end_run = elf.loaded_function(_END, elf.loaded_libraries() - before)
            return result

    def call(self, run: Callable[..., _Result], inputs: Any, *arguments: Any, **keywords: Any) -> _Result:
        """Calls the model in the run of the block; outside of all blocks nothing is recorded."""
        __tracebackhide__ = True  # pytest shows the caller
        current = self._run(self)
        with self._lock:
            if self._calls == 0 and self._told is not None and self._told != (current, os.getpid()):
                self._end()
            self._calls += 1
        try:
            with self._environment(current):
                if current is None:
                    result = run(inputs, *arguments, **keywords)
                else:
                    result = current.inputs.call(run, inputs, *arguments, **keywords)
            self._told = (current, os.getpid())
            return result
        except BaseException as error:
            if current is not None:
                current.failed(error)
                self._told = (current, os.getpid()) if current.has_begun else None
            raise
        finally:
            with self._lock:
                self._calls -= 1

    def end(self) -> bool:
        """Ends its run; False if it goes on: a thread is within a call, or the package has no function that ends it."""
        with self._lock:
            return self._calls == 0 and self._end()

    def _end(self) -> bool:
        told, self._told = self._told, None
        loader = None if self._loader is None else self._loader()
        is_over = loader is None or (self._end_run is not None and self._end_run() == 1)
        if told is not None and told[0] is not None:
            told[0].is_over = is_over
        return is_over

    @contextmanager
    def _environment(self, current: ModelRun | None) -> Iterator[None]:
        """Inside of the `with`, the variables that the runtime reads; nothing is done if it has read them already."""
        if self._told == (current, os.getpid()):
            yield
            return
        with _ENVIRONMENT, changed_environment(_OFF if current is None else current.variables):
            yield
