"""Models that are compiled once a session, however many processes the tests are spread over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch.export import ExportedProgram

from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built, FromPackage, build_from_package, build_model, build_twins, save_run
from tests.once import once


class SessionModels:
    """The models of a module.

    Args:
        module: registers their operators.
        program, configs: of a model: its exported program, and Inductor's settings.
        alone: models that are compared with no plain twin, which is not built.
    """

    def __init__(
        self,
        factory: pytest.TempPathFactory,
        module: str,
        program: Callable[[str], ExportedProgram],
        configs: Callable[[str], Mapping[str, Any]],
        alone: Collection[str] = (),
    ) -> None:
        self._factory = factory
        self._module = module
        self._program = program
        self._configs = configs
        self._alone = frozenset(alone)
        self._runs: dict[str, RunDir] = {}

    def build(self, name: str) -> Built:
        """Builds a model."""

        def make(folder: Path) -> Built:
            built = build_model if name in self._alone else build_twins
            return built(self._program(name), folder, self._configs(name), self._module)

        return once(self._factory, f"built-{self._module}-{name}", make)

    def from_package(self, name: str) -> FromPackage:
        """Compiles a model as any user does, and builds from the package alone."""

        def make(folder: Path) -> FromPackage:
            return build_from_package(self.build(name), folder, self._configs(name), self._module)

        return once(self._factory, f"compiled-{self._module}-{name}", make)

    def saved(self, name: str) -> RunDir:
        """Runs a model at level 1."""

        def make(folder: Path) -> Path:
            return save_run(self.build(name), folder).path

        if name not in self._runs:
            path = once(self._factory, f"runs-{self._module}-{name}", make)
            self._runs[name] = run_directory.open_run(path)
        return self._runs[name]
