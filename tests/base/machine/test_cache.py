from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from aoti_debug.base.machine import cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "aoti_debug"


def write(text: str) -> cache.Fill:
    return lambda directory: (directory / "file").write_text(text)


def test_an_entry_is_made_once(own_cache: Path) -> None:
    first = cache.entry("kind", "name", write("a"))
    second = cache.entry("kind", "name", write("b"))
    assert first == second == own_cache / "kind" / "name"
    assert (second / "file").read_text() == "a"


def test_a_directory_with_a_space_in_its_name_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of two words"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache.directory() == tmp_path / f"aoti_debug-{os.getuid()}"
    assert not (tmp_path / "of two words").exists()


def test_a_failed_entry_leaves_nothing(own_cache: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "part").write_text("x")
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        cache.entry("kind", "name", fail)
    assert list((own_cache / "kind").iterdir()) == []
    assert list((own_cache / "scratch").iterdir()) == []


def at_once(fill: cache.Fill) -> list[Path]:
    """The entry that two builds find which need it at the same time."""
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(cache.entry("kind", "name", fill))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_two_builds_at_once_one_makes_the_entry(own_cache: Path) -> None:
    made = []

    def fill(directory: Path) -> None:
        made.append(directory)
        time.sleep(0.2)
        (directory / "file").write_text("same")

    assert at_once(fill) == [own_cache / "kind" / "name"] * 2
    assert len(made) == 1
    assert [path.name for path in (own_cache / "kind").iterdir()] == ["name"]
    assert list((own_cache / "locks").iterdir()) == []


def test_the_next_build_makes_what_the_first_could_not(own_cache: Path) -> None:
    with pytest.raises(ValueError, match="no disk"):
        cache.entry("kind", "name", Mock(side_effect=ValueError("no disk")))
    assert cache.entry("kind", "name", write("a")) == own_cache / "kind" / "name"


def test_without_locks_two_builds_at_once_share_one_entry(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError("not on this file system")))
    both = threading.Barrier(2)

    def fill(directory: Path) -> None:
        both.wait(10)
        (directory / "file").write_text("same")

    assert at_once(fill) == [own_cache / "kind" / "name"] * 2
    assert [path.name for path in (own_cache / "kind").iterdir()] == ["name"]
    assert list((own_cache / "scratch").iterdir()) == []


def test_unused_and_surplus_entries_go(own_cache: Path) -> None:
    old = cache.entry("kind", "old", write("a"))
    os.utime(old, (0, 0))
    now = time.time()
    for number in range(cache.KEPT_ENTRIES):
        path = cache.entry("kind", f"n{number}", write("a"))
        os.utime(path, (now - 1000 + number, now - 1000 + number))
    assert not old.exists()
    cache.entry("kind", "newest", write("a"))
    kept = sorted(path.name for path in (own_cache / "kind").iterdir())
    assert kept == sorted(["newest", *(f"n{number}" for number in range(1, cache.KEPT_ENTRIES))])


def test_surplus_entries_that_may_be_in_use_stay() -> None:
    entries = [cache.entry("kind", f"n{number}", write("a")) for number in range(cache.KEPT_ENTRIES + 3)]
    assert all((path / "file").is_file() for path in entries)


def test_what_is_used_while_others_are_sized_up_stays(tmp_path: Path) -> None:
    path = old_entry(tmp_path, "headers/a", 1 << 20, 9000)
    (listed,) = cache.cached_entries(tmp_path)
    os.utime(path)
    assert cache.delete_entry(listed) == 0
    assert (path / "file").is_file()


def test_an_entry_goes_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_entry(tmp_path, "headers/a", 1 << 20, 9000)
    (listed,) = cache.cached_entries(tmp_path)
    seen: list[bool] = []
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: seen.append(path.exists()))
    assert cache.delete_entry(listed) >= 1 << 20
    assert seen == [False]


def test_keys_depend_on_every_part_and_its_borders() -> None:
    assert cache.key("ab", "c") == cache.key("ab", "c")
    assert len({cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("abc", "")}) == 4


def test_only_the_newest_logs_are_kept(own_cache: Path) -> None:
    for number in range(cache.KEPT_LOGS + 5):
        path = cache.keep_log(f"n{number:03}", f"text {number}")
    assert path.read_text() == f"text {number}"
    assert len(list((own_cache / "logs").iterdir())) == cache.KEPT_LOGS


def test_a_user_without_a_writable_cache_gets_one_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache.directory() == tmp_path / f"aoti_debug-{os.getuid()}"


def old_entry(root: Path, name: str, size: int, age: float) -> Path:
    """A directory with a file, used for the last time so many seconds ago."""
    path = root / name
    path.mkdir(parents=True)
    (path / "file").write_bytes(b"x" * size)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_cache_that_is_there_is_used_though_the_system_makes_no_directory(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    assert cache.directory() == own_cache
    monkeypatch.setattr(os, "mkdir", refuse)
    assert cache.directory() == own_cache


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    old, newer, newest = (
        old_entry(tmp_path, f"{kind}/{age}", 1 << 20, age) for kind, age in (("a", 9000), ("b", 6000), ("a", 3000))
    )
    deleted = cache.shrink(tmp_path, 2 << 20)
    assert 1 << 20 <= deleted < 3 << 20
    assert not old.exists()
    assert newest.exists()
    cache.shrink(tmp_path, 0)
    assert [path.exists() for path in (newer, newest)] == [False, False]


def test_what_may_be_in_use_stays(tmp_path: Path) -> None:
    path = old_entry(tmp_path, "headers/a", 1 << 20, 60)
    assert cache.shrink(tmp_path, 0) == 0
    assert path.exists()


@pytest.mark.parametrize("kind", ["locks", "scratch", "durations", "made_here"])
def test_what_belongs_to_processes_does_not_count(tmp_path: Path, kind: str) -> None:
    path = old_entry(tmp_path, f"{kind}/a", 1 << 20, 90000)
    assert cache.cached_entries(tmp_path) == []
    assert cache.shrink(tmp_path, 0) == 0
    assert path.exists()


def test_a_new_entry_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache.shrink, "__defaults__", (1 << 20,))
    old = old_entry(cache.directory(), "kind/old", 2 << 20, 9000)
    made = cache.entry("kind", "new", lambda path: (path / "file").write_bytes(b"x" * (2 << 20)))
    assert not old.exists()
    assert made.is_dir()


def test_entries_that_follow_each_other_make_room_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache.shrink, "__defaults__", (0,))
    cache.entry("kind", "first", lambda path: (path / "file").touch())
    old = old_entry(cache.directory(), "kind/old", 1, 9000)
    cache.entry("kind", "second", lambda path: (path / "file").touch())
    assert old.exists()
    os.utime(cache.directory() / "shrunk", (time.time() - cache.SHRUNK_EVERY - 1,) * 2)
    cache.entry("kind", "third", lambda path: (path / "file").touch())
    assert not old.exists()


def test_the_scratch_folder_of_a_process_that_was_killed_goes_with_the_next(own_cache: Path) -> None:
    with cache.scratch() as ours:
        _, here, _ = ours.name.split("-", 2)
        with subprocess.Popen(["true"]) as ended:
            pass
        names = (f"{ended.pid}-{here}-killed", f"{ended.pid}-elsewhr-killed", f"{os.getpid()}-{here}-runs", "1-foreign")
        for name in names:
            (own_cache / "scratch" / name).mkdir()
        with cache.scratch() as another:
            left = {path.name for path in (own_cache / "scratch").iterdir()}
            assert left == {ours.name, another.name, *names[1:]}


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_scratch_folder_goes_though_something_fails_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    remove, failures = os.unlink, [error]

    def unlink(*arguments: Any, **options: Any) -> None:
        if failures:
            raise failures.pop()
        remove(*arguments, **options)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(type(error)) if isinstance(error, KeyboardInterrupt) else contextlib.nullcontext():
        with cache.scratch() as folder:
            for name in ("a", "b"):
                (folder / name).touch()
            monkeypatch.setattr(os, "unlink", unlink)
    assert not failures
    assert not folder.exists()
