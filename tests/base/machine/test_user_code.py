from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aoti_debug.base.machine.user_code import UserCode, files_of, folders_of


def test_modules_of_the_current_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators_of_mine.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as of a console script
    assert folders_of(("operators_of_mine", "torch")) == (str(tmp_path),)
    assert list(files_of(("operators_of_mine",))) == [tmp_path / "operators_of_mine.py"]


def test_a_package_without_an_init_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "mine.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert folders_of(("operators.mine",)) == (str(tmp_path),)
    assert list(files_of(("operators.mine",))) == [tmp_path / "operators" / "mine.py"]


def test_libraries_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert UserCode(libraries=(Path("a.so"), Path("/b.so"))).library_paths == (str(tmp_path / "a.so"), "/b.so")


def test_code_after_other_code() -> None:
    own = UserCode(("b", "c"), (Path("b.so"),), trusted=True)
    assert own.after(["a", "b"], ["a.so"]) == UserCode(("a", "b", "c"), (Path("a.so"), Path("b.so")), trusted=True)
