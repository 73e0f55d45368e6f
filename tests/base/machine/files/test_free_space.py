from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine.files import cgroup_memory, free_space
from tests.disk_usage import DiskUsage

MIB = 1 << 20


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every disk has 300 MiB, of which 44 may be used."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(0, 0, 300 * MIB))


def test_folders_on_one_disk_share_its_space(tmp_path: Path, disk: None) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    free_space.require_disk([(first, 22 * MIB), (second, 22 * MIB)], "building m.pt2", hint="use less")
    with pytest.raises(TargetError) as caught:
        free_space.require_disk([(first, 22 * MIB), (second, 23 * MIB)], "building m.pt2", hint="use less")
    assert str(caught.value) == f"building m.pt2 needs 45.0 MiB on the disk of {first}, and 300.0 MiB are free"
    assert (caught.value.hint, caught.value.exit_code) == ("use less", 5)


def test_nothing_need_be_left(tmp_path: Path, disk: None) -> None:
    free_space.require_disk([(tmp_path, 300 * MIB)], "running m.pt2", hint="use less", reserved=0)
    with pytest.raises(TargetError, match=r"needs 301\.0 MiB on the disk of .*, and 300\.0 MiB are free"):
        free_space.require_disk([(tmp_path, 301 * MIB)], "running m.pt2", hint="use less", reserved=0)


def test_folders_on_two_disks_do_not(tmp_path: Path, disk: None) -> None:
    other = Path("/dev/shm")
    if os.stat(other).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm and the folder of temporary files are one file system")
    free_space.require_disk([(tmp_path, 44 * MIB), (other, 44 * MIB)], "building m.pt2", hint="use less")


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "meminfo"
    monkeypatch.setattr(free_space, "_MEMORY", info)
    monkeypatch.setattr(cgroup_memory, "free_bytes", lambda: None)
    free_space.require_memory(1 << 60, "building m.pt2", hint="")  # Linux does not say
    info.write_text("MemTotal:  9000 kB\nMemAvailable:  2048 kB\nSwapFree:  1024 kB\nHugePages_Total: 0\n")
    free_space.require_memory(3 * MIB, "building m.pt2", hint="")
    monkeypatch.setattr(cgroup_memory, "free_bytes", lambda: 2 * MIB)
    with pytest.raises(TargetError, match=r"needs 3\.0 MiB of memory, and 2\.0 MiB are free"):
        free_space.require_memory(3 * MIB, "building m.pt2", hint="")
    monkeypatch.setattr(cgroup_memory, "free_bytes", lambda: None)
    with pytest.raises(TargetError, match=r"building m\.pt2 needs 4\.0 MiB of memory, and 3\.0 MiB are free"):
        free_space.require_memory(4 * MIB, "building m.pt2", hint="use less")
