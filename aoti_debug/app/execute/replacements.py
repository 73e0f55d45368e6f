"""Replaces the compiler and the loader of packages in the process of a script, as soon as torch is imported.

Both are looked up when they are called, by all functions of torch that load a package. Models without a package, whose
library torch loads directly, are named on stderr.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.native import python_stacks

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from aoti_debug.app.execute.recorded_packages import RecordedPackages

_RUN = "AOTI_DEBUG_RUN"
_PYTHON_STACKS = "python.txt"
DEVICE_ERROR = "device_error.json"
_RUNNERS = tuple(f"AOTIModelContainerRunner{device}" for device in ("Cpu", "Cuda", "Xpu", "Mps"))


class AfterImport:
    """Finds modules as Python does, and calls a function as soon as one of them has been executed."""

    def __init__(self, actions: Mapping[str, Callable[[Any], None]]) -> None:
        self._actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec that the other finders find."""
        action = self._actions.get(name)
        if action is None:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action(module)

        vars(spec.loader)["exec_module"] = exec_module
        return spec


def install() -> None:
    """Prepares the replacements, and writes Python's call stack to the run directory if the process dies."""
    run = Path(os.environ[_RUN])
    python_stacks.enable(run / _PYTHON_STACKS)
    atexit.register(_keep_device_error, run / DEVICE_ERROR, os.getpid())
    packages = functools.cache(lambda: _packages(run))
    actions = {
        "torch": functools.partial(_replace_loaders, packages=packages),
        "torch._inductor": functools.partial(_replace_compiler, packages=packages),
    }
    sys.meta_path.insert(0, AfterImport(actions))


def _keep_device_error(file: Path, process: int) -> None:
    """Writes down the error of a device that ended the script: a launch may have caused it, and only torch reports it.

    Args:
        process: the script's, not one that it has forked.
    """
    error: Any = getattr(sys, "last_value", None)  # which Python sets for an exception that nobody has caught
    if os.getpid() == process and isinstance(getattr(error, "error_code", None), int):
        from aoti_debug.base.machine.files import json_data
        from aoti_debug.base.machine.processes.messages import ErrorData

        file.write_text(json_data.to_text(ErrorData.from_exception(error)), encoding="utf-8")


def _packages(run: Path) -> RecordedPackages:
    from aoti_debug.app.execute.recorded_packages import RecordedPackages  # only a script that has a package waits

    return RecordedPackages(run)


def _replace_compiler(inductor: Any, packages: Callable[[], RecordedPackages]) -> None:
    original = inductor.aoti_compile_and_package

    @functools.wraps(original)
    def aoti_compile_and_package(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        program = args[0] if args else kwargs["exported_program"]
        packages().remember_program(result, program, kwargs.get("inductor_configs") or {})
        return result

    inductor.aoti_compile_and_package = aoti_compile_and_package


def _replace_loaders(torch: Any, packages: Callable[[], RecordedPackages]) -> None:
    aoti = torch._C._aoti
    aoti.AOTIModelPackageLoader = _recording(aoti.AOTIModelPackageLoader, packages)
    for name in _RUNNERS:
        if hasattr(aoti, name):
            setattr(aoti, name, _announcing(getattr(aoti, name)))


def _recording(loader: Any, packages: Callable[[], RecordedPackages]) -> Any:
    """A loader that loads the instrumented package of each package."""

    def __init__(self: Any, model_package_path: str, model_name: str = "model", *args: Any, **kwargs: Any) -> None:  # noqa: N807
        loader.__init__(self, packages().recorded(model_package_path, model_name), model_name, *args, **kwargs)

    return type(loader.__name__, (loader,), {"__init__": __init__, "__module__": loader.__module__})


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
