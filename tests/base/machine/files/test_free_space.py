from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine.files import free_space
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
    monkeypatch.setattr(free_space, "free_in_groups", lambda: None)
    free_space.require_memory(1 << 60, "building m.pt2", hint="")  # Linux does not say
    info.write_text("MemTotal:  9000 kB\nMemAvailable:  2048 kB\nSwapFree:  1024 kB\nHugePages_Total: 0\n")
    free_space.require_memory(3 * MIB, "building m.pt2", hint="")
    monkeypatch.setattr(free_space, "free_in_groups", lambda: 2 * MIB)
    with pytest.raises(TargetError, match=r"needs 3\.0 MiB of memory, and 2\.0 MiB are free"):
        free_space.require_memory(3 * MIB, "building m.pt2", hint="")
    monkeypatch.setattr(free_space, "free_in_groups", lambda: None)
    with pytest.raises(TargetError, match=r"building m\.pt2 needs 4\.0 MiB of memory, and 3\.0 MiB are free"):
        free_space.require_memory(4 * MIB, "building m.pt2", hint="use less")


def free(root: Path, groups: str, files: Mapping[str, str]) -> int | None:
    for name, text in files.items():
        path = root / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "groups").write_text(groups)
    return free_space.free_in_groups(root / "groups", root / "mounted")


STAT = "anon 70\nactive_file 20\ninactive_file 10\nslab_reclaimable 5\n"


@pytest.mark.parametrize("path", ["/a/b", "/only/outside/of/the/container/a"])
def test_version_2(tmp_path: Path, path: str) -> None:
    top = {"memory.max": "1000\n", "memory.current": "400\n", "memory.stat": STAT}
    own = {"a/b/memory.max": "500\n", "a/b/memory.current": "200\n", "a/b/memory.stat": STAT}
    files = {**top, "a/memory.max": "max\n", **own}
    assert free(tmp_path, f"0::{path}\n", files) == {"/a/b": 335}.get(path, 635)


def test_version_1(tmp_path: Path) -> None:
    stat = "cache 9\ntotal_active_file 100\ntotal_inactive_file 50\nactive_file 1\n"
    group = {"limit_in_bytes": "1000\n", "usage_in_bytes": "1200\n"}
    files = {f"memory/x/memory.{name}": text for name, text in group.items()}
    files |= {"memory/x/memory.stat": stat, "memory/memory.limit_in_bytes": "9223372036854771712\n"}
    assert free(tmp_path, "9:name=systemd:/\n4:cpu,memory:/x\n0::/\n", files) == 0
    assert free(tmp_path, "4:cpu,memory:/x\n", {"memory/x/memory.usage_in_bytes": "300"}) == 850


def test_no_limit(tmp_path: Path) -> None:
    assert free(tmp_path, "0::/\n", {"memory.max": "max\n"}) is None
    assert free(tmp_path, "4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}) is None
    assert free_space.free_in_groups(tmp_path / "missing", tmp_path) is None
