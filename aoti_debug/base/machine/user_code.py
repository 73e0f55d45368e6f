"""The modules and libraries of operators of the user's own, which a command may load."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings


@dataclass(frozen=True)
class UserFunction:
    """A function that an option names.

    Attributes:
        option: "--metric".
        text: "my.py:f".
        purpose: what the option names, the end of a hint: "names a function of two tensors".
    """

    option: str
    text: str
    purpose: str

    @property
    def hint(self) -> str:
        """The form that the option takes."""
        return f"{self.option} FILE.py:FUNCTION {self.purpose}"

    def check(self) -> None:
        """Checks that the text is "FILE.py:FUNCTION" and that there is such a file.

        Raises:
            UsageError: it is not, or there is none.
        """
        file, colon, _ = self.text.rpartition(":")
        if not colon:
            raise UsageError(f"{self.option} {self.text} is not FILE.py:FUNCTION", hint=self.hint)
        if not Path(file).is_file():
            raise UsageError(f"{self.option}: {file} does not exist", hint=self.hint)

    def load(self) -> Callable[..., Any]:
        """Executes the file and returns the function; the file may import its neighbours, also later.

        Raises:
            UsageError: there is no such file or function, or the file fails.
        """
        self.check()
        file, _, name = self.text.rpartition(":")
        folder = str(Path(file).resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)
        try:
            function = runpy.run_path(file).get(name)
        except (Exception, SystemExit) as error:  # the user's file may raise anything
            raise UsageError(f"{self.option} {self.text} fails: {_described(error)}", hint=self.hint) from error
        if not callable(function):
            raise UsageError(f"{self.option}: {file} has no function {name}", hint=self.hint)
        found: Callable[..., Any] = function
        return found


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {wording.first_line(str(error))}"


def load(modules: Sequence[str], libraries: Sequence[str]) -> None:
    """Imports modules, has torch load libraries, and takes over the settings of torch that this process is handed."""
    import torch

    for module in modules:
        importlib.import_module(module)
    for library in libraries:
        torch.ops.load_library(library)
    torch_settings.take_over()


def folders_of(modules: Sequence[str]) -> tuple[str, ...]:
    """The folders of those modules that are not installed, also of the current one: where the script has to look."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found: dict[str, None] = {}
    for module in modules:
        top = module.partition(".")[0]
        spec = _spec(top)
        if spec is None:
            continue
        packages = [Path(folder) for folder in spec.submodule_search_locations or ()]  # several of a namespace package
        for place in packages or [Path(spec.origin)] if spec.origin else packages:
            folder = place.resolve().parent
            if str(folder) not in installed:
                found[str(folder)] = None
    return tuple(found)


def files_of(modules: Sequence[str]) -> Iterator[Path]:
    """Yields the files of modules: of a package all that are Python's."""
    for module in modules:
        spec = _spec(module.partition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            for folder in dict.fromkeys(Path(folder).resolve() for folder in spec.submodule_search_locations):
                yield from sorted(folder.rglob("*.py"))
        elif spec is not None and spec.has_location and spec.origin:
            yield Path(spec.origin)


def _spec(module: str) -> ModuleSpec | None:
    return PathFinder.find_spec(module, [os.getcwd(), *sys.path])


@dataclass(frozen=True)
class UserCode:
    """The user's code that a command may run.

    Attributes:
        imports: modules to import before a program or package is loaded.
        libraries: libraries of operators to load before it.
        trusted: run a program, package or run even if it does not count as this user's own.
    """

    imports: tuple[str, ...] = ()
    libraries: tuple[Path, ...] = ()
    trusted: bool = False

    @property
    def library_paths(self) -> tuple[str, ...]:
        """The libraries as absolute paths."""
        return tuple(str(path.resolve()) for path in self.libraries)

    def after(self, imports: Iterable[str], libraries: Iterable[str]) -> UserCode:
        """The same code after other modules and libraries."""
        return replace(
            self,
            imports=tuple(dict.fromkeys((*imports, *self.imports))),
            libraries=tuple(dict.fromkeys((*map(Path, libraries), *self.libraries))),
        )
