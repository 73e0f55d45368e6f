"""The use of a package by a loader, where the package is loaded in the place of another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")


class PackageUse:
    """The package of one loader, and what is done around the loader's work: nothing, unless a subclass does it.

    Attributes:
        path: of the package that is loaded.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def loaded(self, loader: Any) -> None:
        """Receives the loader when it has loaded the package."""

    def change(self, work: Callable[[], _Result]) -> _Result:
        """Loads the package, or changes its weights."""
        return work()

    def call(self, run: Callable[..., _Result], inputs: Any, *arguments: Any, **keywords: Any) -> _Result:
        """Calls the model, with its inputs in a list."""
        __tracebackhide__ = True  # pytest shows the caller
        return run(inputs, *arguments, **keywords)


class ReplacedPackages(Protocol):
    """The packages that are loaded in the place of others."""

    def remember_program(self, package: Any, program: Any, configs: Mapping[str, Any]) -> None:
        """Receives each package that was compiled, a path or a file in memory."""

    def use(self, path: str, model: str) -> PackageUse:
        """The package that a loader is to load in the place of another one."""
