"""Packages and runs of the models of models.py, made once a session (a pytest plugin, see conftest.py)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from aoti_debug import builder, runner
from aoti_debug.rundir import RunDir

TESTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Built:
    """A model of models.py: its exported program, its instrumented package (level 3), its plain twin."""

    program: Path
    package: Path
    plain: Path
    summary: builder.BuildSummary


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Built]:
    """Builds a model of models.py, once a session."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done: dict[str, Built] = {}

    def build(name: str) -> Built:
        if name not in done:
            import models
            import torch

            folder = tmp_path_factory.mktemp(f"built-{name}")
            program = folder / "model.pt2"
            torch.export.save(models.program(name), program)
            options = builder.BuildOptions(
                program=program,
                output=folder / "instrumented.pt2",
                plain=folder / "plain.pt2",
                inductor_configs=models.CASES[name].configs,
                imports=("models",),
            )
            summary = builder.build_report(options)
            done[name] = Built(program, folder / "instrumented.pt2", folder / "plain.pt2", summary)
        return done[name]

    return build


@pytest.fixture(scope="session")
def saved(built: Callable[[str], Built], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunDir]:
    """A run of a model of models.py at level 1, once a session."""
    done: dict[str, RunDir] = {}

    def run(name: str) -> RunDir:
        if name not in done:
            result = runner.run(built(name).package, level=1, out=tmp_path_factory.mktemp(f"runs-{name}"))
            assert result.verdict is None
            done[name] = result.run
        return done[name]

    return run
