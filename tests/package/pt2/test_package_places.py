from __future__ import annotations

import os
from pathlib import Path

import pytest

from aoti_debug.package.pt2 import package_places


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/aoti_debug/package_places"


def test_the_last_place_counts(tmp_path: Path) -> None:
    for name in ("a.pt2", "b.pt2"):
        (tmp_path / name).touch()
        package_places.remember("sha", tmp_path / name)
    assert package_places.find("sha") == tmp_path / "b.pt2"
    (tmp_path / "b.pt2").unlink()
    assert package_places.find("sha") is None
    assert package_places.find("other") is None


def test_a_relative_path_is_remembered_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.pt2").touch()
    package_places.remember("sha", Path("a.pt2"))
    monkeypatch.chdir("/")
    assert package_places.find("sha") == tmp_path / "a.pt2"


def test_the_oldest_are_forgotten(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_places, "_KEPT", 8)
    (tmp_path / "a.pt2").touch()
    for number in range(9):
        package_places.remember(str(number), tmp_path / "a.pt2")
        os.utime(state / str(number), (number, number)) if number < 8 else None
    assert package_places.find("0") is None
    assert package_places.find("8") == tmp_path / "a.pt2"
    assert len(list(state.iterdir())) == 7


def test_without_a_private_directory_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/state")
    package_places.remember("sha", tmp_path)
    assert package_places.find("sha") is None
