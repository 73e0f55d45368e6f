"""Counts how often each run directory is opened, read and diagnosed, and how often its dataflow is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.rundir import run_json
from aoti_debug.runs.rundir.formats import journal
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.report import subject


@dataclass
class Counts:
    """Counts by the name of the run directory."""

    opened: Counter[str] = field(default_factory=Counter)
    journals: Counter[str] = field(default_factory=Counter)
    diagnosed: Counter[str] = field(default_factory=Counter)
    dataflows: Counter[str] = field(default_factory=Counter)


def counted(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Counts from now on until the test ends."""
    counts = Counts()

    def wrap(module: Any, name: str, of: Counter[str], run_of: Callable[..., str]) -> None:
        real = getattr(module, name)

        def counting(*args: Any, **fields: Any) -> Any:
            of[run_of(*args)] += 1
            return real(*args, **fields)

        monkeypatch.setattr(module, name, counting)

    def of_path(path: Path) -> str:
        return path.name

    def of_file(path: Path) -> str:
        return path.parent.name

    def of_run(run: RunDir) -> str:
        return run.path.name

    def of_diagnosed(diagnosed: DiagnosedRun) -> str:
        return diagnosed.run.path.name

    def of_dataflow(_: Dataflow, run: RunDir) -> str:
        return run.path.name

    wrap(run_json, "read", counts.opened, of_path)
    wrap(journal, "read", counts.journals, of_file)
    wrap(vars(DiagnosedRun)["verdict"], "func", counts.diagnosed, of_diagnosed)
    wrap(subject, "diagnose", counts.diagnosed, of_run)
    wrap(Dataflow, "__init__", counts.dataflows, of_dataflow)
    return counts
