"""Replaces the compiler and the loader of packages in this process, as soon as torch is imported.

Both are looked up when they are called, by all functions of torch that load a package. Models without a package, whose
library torch loads directly, are named on stderr.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.app.execute.after_import import AfterImport
from aoti_debug.app.execute.operator_modules import OperatorModules
from aoti_debug.app.execute.script_environment import ScriptSettings
from aoti_debug.base.native import crash_stacks

if TYPE_CHECKING:
    from aoti_debug.app.execute.kept_inputs import ReplacedPackages

_PYTHON_STACKS = "python.txt"
_OF_MODEL = "_aoti_debug_of_model"  # the attribute of an exception that a call of a model has raised
_LONGEST_CHAIN = 20  # of exceptions that were raised while another one was handled
_RUNNERS = tuple(f"AOTIModelContainerRunner{device}" for device in ("Cpu", "Cuda", "Xpu", "Mps"))
USE = "_aoti_debug_use"  # the attribute of a loader that holds its PackageUse
_CALLS = ("run", "boxed_run")  # the methods of a loader that call its model
_CHANGES = ("load_constants", "update_constant_buffer")  # and those that may launch something besides


def install() -> None:
    """Prepares the replacements in a process of a script.

    If the script itself dies, not a process that it has started, Python's call stack is written to the run directory.
    """
    settings = ScriptSettings()
    if not settings.is_child:
        crash_stacks.enable_python(settings.run / _PYTHON_STACKS)
    atexit.register(_keep_error, settings.run)
    settings.cover_children()
    modules = OperatorModules()
    modules.watch()
    Replacements(functools.cache(lambda: _packages(settings, modules))).install()


class Replacements:
    """Replaces the compiler and the loaders, and puts back what was there before.

    Args:
        packages: is called when a package is compiled or loaded.
    """

    def __init__(self, packages: Callable[[], ReplacedPackages]) -> None:
        self._originals: list[tuple[Any, str, Any, Any]] = []
        self._actions: dict[str, Callable[[Any], None]] = {
            "torch": lambda torch: self._replace(torch._C._aoti, loaders(torch._C._aoti, packages)),
            "torch._inductor": lambda inductor: self._replace(inductor, compilers(inductor, packages)),
        }
        self._finder = AfterImport(self._actions)

    def install(self) -> None:
        """Replaces them where they are imported already, and otherwise when they will be."""
        for name, action in self._actions.items():
            if name in sys.modules:
                action(sys.modules[name])
        sys.meta_path.insert(0, self._finder)

    def remove(self) -> None:
        """Puts back what was there before, unless somebody has replaced it since."""
        sys.meta_path.remove(self._finder)
        for owner, name, original, own in self._originals:
            if getattr(owner, name) is own:
                setattr(owner, name, original)
        self._originals = []

    def _replace(self, owner: Any, new: Mapping[str, Any]) -> None:
        for name, value in new.items():
            self._originals.append((owner, name, getattr(owner, name), value))
            setattr(owner, name, value)


def error_file(run: Path, process: int | str) -> Path:
    """The file of the error that ended a process of a script."""
    return run / f"error-{process}.json"


def _keep_error(run: Path) -> None:
    """Writes down the error that ended the process, if a model or a device has raised it: a launch may be the cause."""
    error = getattr(sys, "last_value", None)  # which Python sets for an exception that nobody has caught
    for _ in range(_LONGEST_CHAIN):
        if error is None or isinstance(getattr(error, "error_code", None), int) or hasattr(error, _OF_MODEL):
            break
        error = error.__cause__ or error.__context__
    else:
        error = None
    if error is not None:
        from aoti_debug.base.machine.files import json_data
        from aoti_debug.base.machine.processes.messages import ErrorData

        file = error_file(run, os.getpid())
        file.write_text(json_data.to_text(ErrorData.from_exception(error)), encoding="utf-8")


def _packages(settings: ScriptSettings, modules: OperatorModules) -> ReplacedPackages:
    from aoti_debug.app.execute.recorded_packages import RecordedPackages  # only a script that has a package waits

    return RecordedPackages(settings.run, modules, keeps_all=settings.keeps_all)


def compilers(inductor: Any, packages: Callable[[], ReplacedPackages]) -> dict[str, Any]:
    """The replacement of the compiler in torch._inductor: it remembers the programs of packages."""
    original = inductor.aoti_compile_and_package

    @functools.wraps(original)
    def aoti_compile_and_package(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        program = args[0] if args else kwargs["exported_program"]
        packages().remember_program(result, program, kwargs.get("inductor_configs") or {})
        return result

    return {"aoti_compile_and_package": aoti_compile_and_package}


def loaders(aoti: Any, packages: Callable[[], ReplacedPackages]) -> dict[str, Any]:
    """The replacements of the loaders in torch._C._aoti, by their names."""
    runners = {name: _announcing(getattr(aoti, name)) for name in _RUNNERS if hasattr(aoti, name)}
    return {"AOTIModelPackageLoader": _recording(aoti.AOTIModelPackageLoader, packages), **runners}


def _recording(loader: Any, packages: Callable[[], ReplacedPackages]) -> Any:
    """A loader that loads the instrumented package of each package."""

    def __init__(self: Any, model_package_path: str, model_name: str = "model", *args: Any, **kwargs: Any) -> None:  # noqa: N807
        use = packages().use(model_package_path, model_name)
        use.change(lambda: loader.__init__(self, use.path, model_name, *args, **kwargs))
        setattr(self, USE, use)
        use.loaded(self)

    members: dict[str, Any] = {"__init__": __init__, "__module__": loader.__module__}
    members |= {name: _called(getattr(loader, name)) for name in _CALLS if hasattr(loader, name)}
    members |= {name: _changed(getattr(loader, name)) for name in _CHANGES if hasattr(loader, name)}
    return type(loader.__name__, (loader,), members)


def _called(method: Any) -> Any:
    @functools.wraps(method)
    def call(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # pytest shows the caller
        try:
            return getattr(self, USE).call(functools.partial(method, self), inputs, *args, **kwargs)
        except Exception as error:
            vars(error)[_OF_MODEL] = True
            raise

    return call


def _changed(method: Any) -> Any:
    @functools.wraps(method)
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, USE).change(functools.partial(method, self, *args, **kwargs))

    return change


def _announcing(runner: Any) -> Any:
    """A runner of a bare library, which says once of each library that it is not recorded."""
    known = set()

    def __init__(self: Any, model_so_path: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if model_so_path not in known:
            known.add(model_so_path)
            print(
                f"aoti-debug: {model_so_path} is not recorded: it is a library, and only packages (.pt2) are replaced",
                file=sys.stderr,
            )
        runner.__init__(self, model_so_path, *args, **kwargs)

    return type(runner.__name__, (runner,), {"__init__": __init__, "__module__": runner.__module__})
