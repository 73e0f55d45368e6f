"""Calls of commands to the system fail: one error line with a hint, and nothing half-written."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
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


def test_a_text_is_compiled_once_whatever_its_scratch_folder_is_called(tmp_path: Path) -> None:
    counting = tmp_path / "compiler"
    counting.write_text(
        f'#!/bin/sh\necho >> {tmp_path}/calls\nwhile [ "$1" != -o ]; do shift; done\necho made > "$2"\n'
    )
    counting.chmod(0o755)

    def compiled(folder: Path, text: str, *options: str) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "a.cpp").write_text(text)
        variables = {**commands.remembering_compiler(folder.parents[1], tmp_path), "COMPILER": str(counting)}
        command = [str(commands.COMPILER), "-c", str(folder / "a.cpp"), *options, "-o", str(folder / "a.o")]
        subprocess.run(command, env={**os.environ, **variables}, check=True)
        return (folder / "a.o").read_text()

    texts = ("int a;", "int b;")
    for name in ("one/scratch/12-ab_c", "one/scratch/345-0a-xyz", "two/scratch/6-d"):
        assert {compiled(tmp_path / name, text) for text in texts} == {"made\n"}
    assert len((tmp_path / "calls").read_text()) == 2
    compiled(tmp_path / "one/scratch/7-e", texts[0], "-O3")
    assert len((tmp_path / "calls").read_text()) == 3
