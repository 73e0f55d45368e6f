from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine import exhaustion
from aoti_debug.base.machine.exhaustion import chain_of, exhausted, lacking, raised_refusal, refusal
from tests.disk_usage import DiskUsage


@pytest.mark.parametrize(
    ("error", "what", "text"),
    [
        (OSError(errno.ENOSPC, "x", "/tmp/a.so"), "disk space", "No space left on device: /tmp/a.so"),
        (OSError(errno.EDQUOT, "x"), "disk space", "Disk quota exceeded"),
        (OSError(errno.ENOMEM, "x"), "memory", "Cannot allocate memory"),
        (MemoryError(), "memory", "out of memory"),
        (MemoryError("std::bad_alloc"), "memory", "std::bad_alloc"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), "device memory", "CUDA out of memory. Tried"),
        (RuntimeError("CUDA error: out of memory\nmore"), "device memory", "CUDA error: out of memory"),
        (RuntimeError("CUDA driver error: out of memory"), "device memory", "CUDA driver error: out of memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            "memory",
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.",
        ),
    ],
)
def test_what_is_exhausted(error: BaseException, what: str, text: str) -> None:
    found = exhausted(error)
    assert found is not None
    assert (found.what, found.text) == (what, text)
    assert {"disk space": "TMPDIR", "memory": "by-reference", "device memory": "nvidia-smi"}[what] in found.hint


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("/tmp/cc1.s: fatal error: error writing to /tmp/cc1.s: No space left on device", "disk space"),
        ("cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes", "memory"),
        ("Traceback (most recent call last):\nMemoryError", "memory"),
        ("a.cpp:1:1: error: 'x' does not name a type", ""),
    ],
)
def test_what_a_text_says(text: str, what: str) -> None:
    assert lacking(text) == what


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "x"), RuntimeError("CUDA error: invalid argument"), ValueError("out of memory")]
)
def test_other_exceptions(error: BaseException) -> None:
    assert exhausted(error) is None


def test_an_exception_that_came_from_one() -> None:
    def fail() -> None:
        try:
            raise OSError(errno.ENOSPC, "x", "/f")
        except OSError as error:
            raise RuntimeError("inductor failed") from error

    with pytest.raises(RuntimeError) as caught:
        fail()
    found = exhausted(caught.value)
    assert found is not None
    assert found.text == "No space left on device: /f"
    assert [type(link) for link in chain_of(caught.value)] == [RuntimeError, OSError]


def test_a_circle_ends() -> None:
    first, second = ValueError(), TypeError()
    first.__cause__, second.__cause__ = second, first
    assert exhausted(first) is None


def test_what_the_system_has_refused() -> None:
    error = ValueError("x")
    assert refusal(error) is None
    error.__cause__ = cause = OSError(errno.EIO, "Input/output error")
    assert refusal(error) is cause
    assert refusal(FileNotFoundError(errno.ENOENT, "No such file")) is None


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("Traceback …\n  x\nOSError: [Errno 5] Input/output error: '/a/b'\n", (errno.EIO, "/a/b")),
        ("a.b.PermissionError: [Errno 13] Permission denied", (errno.EACCES, None)),
        ("OSError: [Errno 5] Input/output error\nand went on", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", None),
        ("", None),
    ],
)
def test_what_a_process_has_been_refused(output: str, found: tuple[int, str | None] | None) -> None:
    error = raised_refusal(output)
    assert (error and (error.errno, error.filename)) == found


MIB = 1 << 20


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every disk has 300 MiB, of which 44 may be used."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(0, 0, 300 * MIB))


def test_folders_on_one_disk_share_its_space(tmp_path: Path, disk: None) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    exhaustion.require_disk([(first, 22 * MIB), (second, 22 * MIB)], "building m.pt2", hint="use less")
    with pytest.raises(TargetError) as caught:
        exhaustion.require_disk([(first, 22 * MIB), (second, 23 * MIB)], "building m.pt2", hint="use less")
    assert str(caught.value) == f"building m.pt2 needs 45.0 MiB on the disk of {first}, and 300.0 MiB are free"
    assert (caught.value.hint, caught.value.exit_code) == ("use less", 5)


def test_nothing_need_be_left(tmp_path: Path, disk: None) -> None:
    exhaustion.require_disk([(tmp_path, 300 * MIB)], "running m.pt2", hint="use less", reserved=0)
    with pytest.raises(TargetError, match=r"needs 301\.0 MiB on the disk of .*, and 300\.0 MiB are free"):
        exhaustion.require_disk([(tmp_path, 301 * MIB)], "running m.pt2", hint="use less", reserved=0)


def test_folders_on_two_disks_do_not(tmp_path: Path, disk: None) -> None:
    other = Path("/dev/shm")
    if os.stat(other).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm and the folder of temporary files are one file system")
    exhaustion.require_disk([(tmp_path, 44 * MIB), (other, 44 * MIB)], "building m.pt2", hint="use less")


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "meminfo"
    monkeypatch.setattr(exhaustion, "_MEMORY", info)
    monkeypatch.setattr(exhaustion, "free_in_groups", lambda: None)
    exhaustion.require_memory(1 << 60, "building m.pt2", hint="")  # Linux does not say
    info.write_text("MemTotal:  9000 kB\nMemAvailable:  2048 kB\nSwapFree:  1024 kB\nHugePages_Total: 0\n")
    exhaustion.require_memory(3 * MIB, "building m.pt2", hint="")
    monkeypatch.setattr(exhaustion, "free_in_groups", lambda: 2 * MIB)
    with pytest.raises(TargetError, match=r"needs 3\.0 MiB of memory, and 2\.0 MiB are free"):
        exhaustion.require_memory(3 * MIB, "building m.pt2", hint="")
    monkeypatch.setattr(exhaustion, "free_in_groups", lambda: None)
    with pytest.raises(TargetError, match=r"building m\.pt2 needs 4\.0 MiB of memory, and 3\.0 MiB are free"):
        exhaustion.require_memory(4 * MIB, "building m.pt2", hint="use less")


def free(root: Path, groups: str, files: Mapping[str, str]) -> int | None:
    for name, text in files.items():
        path = root / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "groups").write_text(groups)
    return exhaustion.free_in_groups(root / "groups", root / "mounted")


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
    assert exhaustion.free_in_groups(tmp_path / "missing", tmp_path) is None
