from __future__ import annotations

import os
from pathlib import Path

import pytest

from aoti_debug.package.pt2 import trust


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/aoti_debug/package_places"


def test_the_last_place_counts(tmp_path: Path) -> None:
    for name in ("a.pt2", "b.pt2"):
        (tmp_path / name).touch()
        trust.remember_place("sha", tmp_path / name)
    assert trust.find_place("sha") == tmp_path / "b.pt2"
    (tmp_path / "b.pt2").unlink()
    assert trust.find_place("sha") is None
    assert trust.find_place("other") is None


def test_a_relative_path_is_remembered_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.pt2").touch()
    trust.remember_place("sha", Path("a.pt2"))
    monkeypatch.chdir("/")
    assert trust.find_place("sha") == tmp_path / "a.pt2"


def test_the_oldest_are_forgotten(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_KEPT_PLACES", 8)
    (tmp_path / "a.pt2").touch()
    for number in range(9):
        trust.remember_place(str(number), tmp_path / "a.pt2")
        os.utime(state / str(number), (number, number)) if number < 8 else None
    assert trust.find_place("0") is None
    assert trust.find_place("8") == tmp_path / "a.pt2"
    assert len(list(state.iterdir())) == 7


def test_without_a_private_directory_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/state")
    trust.remember_place("sha", tmp_path)
    assert trust.find_place("sha") is None
