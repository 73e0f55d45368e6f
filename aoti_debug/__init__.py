"""Debugger for PyTorch AOTInductor models: names the guilty kernel, saves its real inputs, replays it alone.

    import aoti_debug
    from aoti_debug.base.abi import Phase

    found = aoti_debug.triage(model, x)  # why does it crash, hang, or compute NaN or wrong values?
    compared = aoti_debug.compare(model, x)  # every launch against what the program says
    found = aoti_debug.equal(model, x)  # what makes it equal to eager, bit for bit
    rounded = aoti_debug.precision(model, x)  # which modules may be bfloat16?
    with aoti_debug.record() as recorded: ...  # the packages that are compiled or loaded in the block
    found = aoti_debug.invariance(model, x)  # has a sample the same bits alone and in a batch?
    written = aoti_debug.repro(recorded)  # a script that replays one launch alone
    result = aoti_debug.debug(model, x)  # export, build and run: result.outputs, result.verdict, result.run
    package = aoti_debug.build("model.pt2")  # or an ExportedProgram
    run = aoti_debug.open_run()  # the latest; or open_run(path)
    verdict = aoti_debug.diagnose(run)  # None for a clean run
    tensors = aoti_debug.load_launch(run, run.launch("0.3"), Phase.BEFORE)
    tensor = aoti_debug.load_file(path)  # a saved .safetensors file, with strides and offset

The rest is the command line: `aoti-debug run`, `show`, `exec`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aoti_debug.app.python.debug import debug
    from aoti_debug.app.python.invariance_and_precision import (
        RoundingOptions,
        SampleOptions,
        invariance,
        invariance_by_size,
        precision,
    )
    from aoti_debug.app.python.notebook import load_ipython_extension
    from aoti_debug.app.python.procedures import compare, equal, repro, triage
    from aoti_debug.app.python.record import record
    from aoti_debug.base.version import __version__
    from aoti_debug.instrument.builder.build import build
    from aoti_debug.instrument.builder.options import BuildSettings
    from aoti_debug.package.printing.inspectors import inspect_modules, inspector
    from aoti_debug.package.printing.print_operator import print_
    from aoti_debug.runs.diagnosis.diagnose import diagnose
    from aoti_debug.runs.run.inspector import inspect
    from aoti_debug.runs.rundir.load_tensors import load_file, load_launch
    from aoti_debug.runs.rundir.run_directory import open_run

__all__ = [
    "BuildSettings",
    "RoundingOptions",
    "SampleOptions",
    "__version__",
    "build",
    "compare",
    "debug",
    "diagnose",
    "equal",
    "inspect",
    "inspect_modules",
    "inspector",
    "invariance",
    "invariance_by_size",
    "load_file",
    "load_ipython_extension",
    "load_launch",
    "open_run",
    "precision",
    "print_",
    "record",
    "repro",
    "triage",
]

_MODULES = {
    "BuildSettings": "aoti_debug.instrument.builder.options",
    "RoundingOptions": "aoti_debug.app.python.invariance_and_precision",
    "SampleOptions": "aoti_debug.app.python.invariance_and_precision",
    "__version__": "aoti_debug.base.version",
    "build": "aoti_debug.instrument.builder.build",
    "compare": "aoti_debug.app.python.procedures",
    "debug": "aoti_debug.app.python.debug",
    "diagnose": "aoti_debug.runs.diagnosis.diagnose",
    "equal": "aoti_debug.app.python.procedures",
    "inspect": "aoti_debug.runs.run.inspector",
    "inspect_modules": "aoti_debug.package.printing.inspectors",
    "inspector": "aoti_debug.package.printing.inspectors",
    "invariance": "aoti_debug.app.python.invariance_and_precision",
    "invariance_by_size": "aoti_debug.app.python.invariance_and_precision",
    "load_file": "aoti_debug.runs.rundir.load_tensors",
    "load_ipython_extension": "aoti_debug.app.python.notebook",
    "load_launch": "aoti_debug.runs.rundir.load_tensors",
    "open_run": "aoti_debug.runs.rundir.run_directory",
    "precision": "aoti_debug.app.python.invariance_and_precision",
    "print_": "aoti_debug.package.printing.print_operator",
    "record": "aoti_debug.app.python.record",
    "repro": "aoti_debug.app.python.procedures",
    "triage": "aoti_debug.app.python.procedures",
}


_WINGS = ("compare", "repro", "triage")  # folders of modules with the name of a function


def _function(name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)


class _Wing(ModuleType):
    """A folder of modules that is called as the public function of its name."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return _function(self.__name__.rpartition(".")[2])(*arguments, **keywords)


class _Package(ModuleType):
    """This package: Python sets a folder as its attribute when the first module of the folder is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _WINGS and isinstance(value, ModuleType):
            value.__class__ = _Wing
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Imports a public function when it is used: the command line starts in a few milliseconds."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _WINGS:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    return _function(name)
