from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.stamped_directories import find, names

MARKER = "mark.json"


def made(base: Path, name: str) -> Path:
    path = base / name
    path.mkdir(parents=True)
    (path / MARKER).touch()
    return path


def test_new_directories_are_named_by_time_and_process(tmp_path: Path) -> None:
    base = tmp_path / "some" / "base"
    paths = [stamped_directories.create(base) for _ in range(3)]
    assert len(set(paths)) == 3
    for path in paths:
        assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{os.getpid()}(-[23])?", path.name)
        assert (path.parent, list(path.iterdir())) == (base, [])
    assert names(base, MARKER) == ()


def test_a_relative_base_gives_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert stamped_directories.create(Path("base")).parent == tmp_path / "base"


def test_a_base_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="Not a directory"):
        stamped_directories.create(tmp_path / "file")


def test_removing_takes_the_base_along_where_it_is_empty(tmp_path: Path) -> None:
    base = tmp_path / "base"
    first, second = stamped_directories.create(base), stamped_directories.create(base)
    (first / "file").touch()
    stamped_directories.remove(first, base)
    assert list(base.iterdir()) == [second]
    stamped_directories.link_latest(second)
    stamped_directories.remove(second, base)
    assert not base.exists()
    stamped_directories.remove(stamped_directories.create(base), None)
    assert list(base.iterdir()) == []


@pytest.mark.parametrize(
    ("kept", "written", "remains"), [((), "x", True), (("a", "b"), "b", True), (("a",), "x", False)]
)
@pytest.mark.parametrize("fails", [False, True])
def test_a_new_folder_remains_if_it_holds_something(
    tmp_path: Path, kept: tuple[str, ...], written: str, remains: bool, fails: bool
) -> None:
    base = tmp_path / "base"
    with contextlib.suppress(KeyError), stamped_directories.new_folder(base, *kept) as folder:
        (folder / written).touch()
        if fails:
            raise KeyError
    assert base.exists() == remains
    assert not remains or (base / "latest").resolve() == folder


def test_latest_is_replaced_in_one_step(tmp_path: Path) -> None:
    for name in ("1", "2"):
        stamped_directories.link_latest(made(tmp_path, name))
        assert os.readlink(tmp_path / "latest") == name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "latest"]


def test_names_are_those_with_the_marker_oldest_first(tmp_path: Path) -> None:
    assert names(tmp_path / "none", MARKER) == ()
    for name in ("20261120-2", "20261120-1"):
        stamped_directories.link_latest(made(tmp_path, name))
    (tmp_path / "20261120-3").mkdir()
    (tmp_path / "file").touch()
    assert names(tmp_path, MARKER) == ("20261120-1", "20261120-2")
    assert names(tmp_path, "other.json") == ()


def test_finding_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "base"
    old, new = made(base, "1"), made(base, "2")
    assert find(None, base, MARKER) == find(base, base, MARKER) == new
    assert find(None, base, "other.json") is None
    stamped_directories.link_latest(new)
    assert find(None, base, MARKER) == find("", base, MARKER) == find("latest", base, MARKER) == new
    assert find("1", base, MARKER) == find(old, tmp_path / "none", MARKER) == old
    assert find(base, tmp_path / "none", MARKER) == new
    assert find("3", base, MARKER) is find("1", base, "other.json") is None
    monkeypatch.chdir(base)
    assert find("1", tmp_path / "none", MARKER) == old
    new.rename(base / "elsewhere")
    assert find(None, base, MARKER) is None


def test_a_broken_latest_leads_to_the_newest_again(tmp_path: Path) -> None:
    first, second = made(tmp_path, "20261120-231501-1"), made(tmp_path, "20261120-231502-1")
    stamped_directories.link_latest(second)
    stamped_directories.relink_latest(tmp_path, MARKER)
    assert (tmp_path / "latest").resolve() == second
    stamped_directories.remove(second, None)
    stamped_directories.relink_latest(tmp_path, MARKER)
    assert (tmp_path / "latest").resolve() == first
    stamped_directories.remove(first, None)
    stamped_directories.relink_latest(tmp_path, MARKER)
    assert not (tmp_path / "latest").is_symlink()
