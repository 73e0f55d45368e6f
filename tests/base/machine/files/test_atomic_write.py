from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.machine.files import atomic_write


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", ["", "größer\n", b"\x00\xff"])
@pytest.mark.parametrize("name", ["a.json", "n" * 255, "ä" * 127])
def test_a_new_file(tmp_path: Path, name: str, content: str | bytes) -> None:
    atomic_write.write(tmp_path / name, content)
    assert (tmp_path / name).read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert names(tmp_path) == [name]


def test_the_mode_is_that_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    atomic_write.write(tmp_path / "written", "x")
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    atomic_write.write(tmp_path / "link", "new")
    assert not (tmp_path / "link").is_symlink()
    assert ((tmp_path / "target").read_text(), (tmp_path / "link").read_text()) == ("old", "new")


def test_a_full_disk_leaves_the_older_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:1])
        raise OSError(28, "No space left on device")

    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write.write(tmp_path / "a", "new")
    assert ((tmp_path / "a").read_text(), names(tmp_path)) == ("old", ["a"])


@pytest.mark.parametrize(("call", "write"), [("touch", atomic_write.write), ("symlink_to", atomic_write.write_link)])
def test_a_signal_that_comes_as_the_temporary_file_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, write: Any
) -> None:
    make = getattr(Path, call)

    def make_and_end(*arguments: Any, **options: Any) -> None:
        make(*arguments, **options)
        raise SystemExit(143)

    monkeypatch.setattr(Path, call, make_and_end)
    with pytest.raises(SystemExit):
        write(tmp_path / "a", "b")
    assert names(tmp_path) == []


@pytest.mark.parametrize("opened", [atomic_write.replace_file, atomic_write.create_file, atomic_write.temporary_beside])
def test_an_interruption_leaves_nothing(tmp_path: Path, opened: Any) -> None:
    def write_half() -> None:
        with opened(tmp_path / "a") as temporary:
            temporary.write_text("half")
            assert names(tmp_path) == [temporary.name]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert names(tmp_path) == []


def test_a_name_that_is_taken_by_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        atomic_write.write(tmp_path / "a", "x")
    assert names(tmp_path) == ["a"]


def test_two_writers_of_one_process_do_not_meet(tmp_path: Path) -> None:
    with atomic_write.replace_file(tmp_path / "a") as first, atomic_write.replace_file(tmp_path / "a") as second:
        first.write_text("first")
        second.write_text("second")
    assert ((tmp_path / "a").read_text(), names(tmp_path)) == ("first", ["a"])


@pytest.mark.parametrize("links", [True, False])
def test_creating_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    def refused(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    with atomic_write.create_file(tmp_path / "a") as temporary:
        temporary.write_text("first")
    with pytest.raises(FileExistsError), atomic_write.create_file(tmp_path / "a") as temporary:
        temporary.write_text("second")
    assert ((tmp_path / "a").read_text(), names(tmp_path)) == ("first", ["a"])


def test_a_temporary_file_may_be_renamed_or_not(tmp_path: Path) -> None:
    with atomic_write.temporary_beside(tmp_path / "a"):
        pass
    assert names(tmp_path) == []
    with atomic_write.temporary_beside(tmp_path / "a") as temporary:
        temporary.rename(tmp_path / "b")
    assert names(tmp_path) == ["b"]


def test_a_link_is_made_and_replaced(tmp_path: Path) -> None:
    for target in ("one", "two"):
        atomic_write.write_link(tmp_path / "link", target)
        assert (tmp_path / "link").readlink() == Path(target)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        atomic_write.write_link(tmp_path / "folder", "one")
    assert names(tmp_path) == ["folder", "link"]
