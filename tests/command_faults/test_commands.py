"""Calls of commands to the system fail: one error line with a hint, and nothing half-written."""

from __future__ import annotations

import errno
import shutil
import signal
from pathlib import Path

import pytest

from tests import crashed_run
from tests.command_faults import commands
from tests.command_faults.commands import CACHE, TEMPORARY, WORK, Fault
from tests.once import once


@pytest.fixture
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    return once(tmp_path_factory, "preloaded", commands.compile_library)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    folder = tmp_path / "template"
    for name in (CACHE, TEMPORARY, WORK):
        (folder / name).mkdir(parents=True)
    crashed_run.crashed(folder / WORK / "aoti-debug", None)
    return folder


@pytest.mark.parametrize(
    ("command", "fault", "first", "step"),
    [
        ("show", Fault(errno.EACCES), 50, 15),
        ("report", Fault(errno.ENOSPC, lasts=True), 4, 2),
        ("report", Fault(-signal.SIGTERM), 60, 40),
    ],
)
def test_one_error_and_nothing_half_written(
    library: Path, template: Path, command: str, fault: Fault, first: int, step: int
) -> None:
    points = list(commands.points(library, template, [command], fault, first=first, step=step))
    assert points
    assert [point for point in points if point.problems] == []
