"""A received run directory whose links to shared memory lead to files of the reader."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.runs.run import runner
from aoti_debug.runs.rundir.formats import shared_files
from tests import factories
from tests.crashed_run import NOBODY, both_launches, crashed

LINKS = ("flight.bin", "crumbs.bin")


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory where /dev/shm would be."""
    directory = tmp_path / "shm"
    directory.mkdir()
    monkeypatch.setattr(shared_files, "DIRECTORY", directory, raising=False)
    return directory


def memory_of(run: Path, name: str) -> bytes:
    """The content of a file of shared memory that names a run."""
    content = both_launches().bytes() if name == "flight.bin" else factories.crumbs(5)
    return content.ljust(-(-len(content) // 4096) * 4096, b"\0") + str(run).encode().ljust(4096, b"\0")


@pytest.mark.parametrize("name", LINKS)
def test_a_link_to_any_file_neither_reads_nor_removes_it(
    tmp_path: Path, shm: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = crashed(tmp_path, None)
    precious = tmp_path / "precious.txt"
    precious.write_text("secret")
    (run / name).symlink_to(precious)
    main.run(["show", "--run", str(run)])
    assert precious.read_text() == "secret"
    assert (run / name).is_symlink()
    assert "70" not in capfd.readouterr().err.split()


@pytest.mark.parametrize("name", LINKS)
def test_memory_of_another_run_is_not_this_runs(tmp_path: Path, shm: Path, name: str) -> None:
    own, received = crashed(tmp_path / "own", None), crashed(tmp_path / "received", None)
    memory = shm / f"aoti_debug-{NOBODY}-1-{name}"
    memory.write_bytes(memory_of(own, name))
    (received / name).symlink_to(memory)
    assert main.run(["show", "--run", str(received)]) == 0
    assert memory.exists()
    shutil.rmtree(received)
    (own / name).symlink_to(memory)
    assert main.run(["show", "--run", str(own)]) == 0
    assert not memory.exists()


@pytest.mark.parametrize("name", LINKS)
def test_a_link_in_shared_memory_is_not_followed_either(tmp_path: Path, shm: Path, name: str) -> None:
    run = crashed(tmp_path, None)
    precious = tmp_path / "precious.txt"
    precious.write_bytes(memory_of(run, name))
    (shm / f"aoti_debug-{NOBODY}-1-{name}").symlink_to(precious)
    (run / name).symlink_to(shm / f"aoti_debug-{NOBODY}-1-{name}")
    main.run(["show", "--run", str(run)])
    runner.reclaim()
    assert precious.exists()
    assert (shm / f"aoti_debug-{NOBODY}-1-{name}").is_symlink()


def test_what_others_put_into_shared_memory_is_left_alone(tmp_path: Path, shm: Path) -> None:
    os.mkfifo(shm / f"aoti_debug-{NOBODY}-2-flight.bin")
    (shm / f"aoti_debug-{NOBODY}-3-flight.bin").mkdir()
    runner.reclaim()
    assert len(list(shm.iterdir())) == 2
