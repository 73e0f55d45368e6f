"""Models of cuda_models.py, each compiled once, however many processes the tests are spread over."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from built_model import Built, FromPackage, build_from_package, build_model, importable, save_run
from once import once

from aoti_debug.rundir import run_directory
from aoti_debug.rundir.run_directory import RunDir

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Built]:
    """Builds a case of cuda_models.py, once a session."""
    importable(HERE)

    @functools.cache
    def built(name: str) -> Built:
        import cuda_models

        def make(folder: Path) -> Built:
            case = cuda_models.case(name)
            return build_model(case.export(), folder, case.inductor_configs, "cuda_models")

        return once(tmp_path_factory, f"cuda-{name}", make)

    return built


@pytest.fixture(scope="session")
def saved(build: Callable[[str], Built], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunDir]:
    """A run of a case at level 1, once a session."""

    @functools.cache
    def run(name: str) -> RunDir:
        path = once(tmp_path_factory, f"cuda-runs-{name}", lambda folder: save_run(build(name), folder).path)
        return run_directory.open_run(path)

    return run


@pytest.fixture(scope="session")
def from_package(
    build: Callable[[str], Built], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], FromPackage]:
    """Compiles a case of cuda_models.py and builds from its package, once a session."""

    @functools.cache
    def built(name: str) -> FromPackage:
        import cuda_models

        def make(folder: Path) -> FromPackage:
            return build_from_package(build(name), folder, cuda_models.case(name).inductor_configs, "cuda_models")

        return once(tmp_path_factory, f"cuda-compiled-{name}", make)

    return built
