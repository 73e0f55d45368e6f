from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aoti_debug.base.machine import cache, cache_size


def entry(root: Path, name: str, size: int, age: float) -> Path:
    """A directory with a file, used for the last time so many seconds ago."""
    path = root / name
    path.mkdir(parents=True)
    (path / "file").write_bytes(b"x" * size)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    old, newer, newest = (
        entry(tmp_path, f"{kind}/{age}", 1 << 20, age) for kind, age in (("a", 9000), ("b", 6000), ("a", 3000))
    )
    deleted = cache_size.shrink(tmp_path, 2 << 20)
    assert 1 << 20 <= deleted < 3 << 20
    assert not old.exists()
    assert newest.exists()
    cache_size.shrink(tmp_path, 0)
    assert [path.exists() for path in (newer, newest)] == [False, False]


def test_what_may_be_in_use_stays(tmp_path: Path) -> None:
    path = entry(tmp_path, "headers/a", 1 << 20, 60)
    assert cache_size.shrink(tmp_path, 0) == 0
    assert path.exists()


@pytest.mark.parametrize("kind", ["locks", "scratch", "durations", "made_here"])
def test_what_belongs_to_processes_does_not_count(tmp_path: Path, kind: str) -> None:
    path = entry(tmp_path, f"{kind}/a", 1 << 20, 90000)
    assert cache_size.entries(tmp_path) == []
    assert cache_size.shrink(tmp_path, 0) == 0
    assert path.exists()


def test_a_new_entry_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache_size.shrink, "__defaults__", (1 << 20,))
    old = entry(cache.directory(), "kind/old", 2 << 20, 9000)
    made = cache.entry("kind", "new", lambda path: (path / "file").write_bytes(b"x" * (2 << 20)))
    assert not old.exists()
    assert made.is_dir()
