"""Directories that another user, or an archive, has put where this tool keeps code that it executes."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.repro.templates import cpp_build
from aoti_debug.repro.templates.cpp_build import CppCompiler


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache in the home directory, and a temporary directory of this test."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of two words"))
    cpp_build._elsewhere.cache_clear()


def fallback(tmp_path: Path) -> Path:
    return tmp_path / "tmp" / f"aoti_debug-{os.getuid()}"


def is_closed(path: Path) -> bool:
    return not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o700


def plant(directory: Path, kind: str) -> None:
    """Puts something there that is no private directory."""
    if kind == "file":
        directory.write_text("foreign")
    elif kind == "link":
        target = directory.parent / "planted"
        target.mkdir(mode=0o700)
        directory.symlink_to(target)
    else:
        directory.mkdir()
        directory.chmod({"open": 0o777, "group": 0o770, "readable": 0o755}[kind])


@pytest.mark.parametrize("kind", ["file", "link", "open", "group", "readable"])
def test_a_planted_cache_in_the_temporary_directory_is_not_used(tmp_path: Path, kind: str) -> None:
    plant(fallback(tmp_path), kind)
    found = cache.directory()
    assert found != fallback(tmp_path)
    assert is_closed(found)
    assert cache.directory() == found
    LastDurations("build", "model.pt2").remember("compile", 1.0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a directory of another user")
def test_a_cache_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for directory in (fallback(tmp_path), tmp_path / "home" / "aoti_debug"):
        directory.mkdir(mode=0o700, parents=True)
        os.chown(directory, 12345, 12345)
    found = cache.directory()
    assert found.stat().st_uid == 0
    assert found.parent == tmp_path / "tmp"


@pytest.mark.parametrize("kind", ["file", "link", "open", "group"])
def test_a_planted_cache_in_the_home_directory_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    plant(tmp_path / "home" / "aoti_debug", kind)
    assert is_closed(cache.directory())
    assert cache.directory().parent == tmp_path / "tmp"


def test_a_cache_that_others_can_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    plant(tmp_path / "home" / "aoti_debug", "readable")
    assert cache.directory() == tmp_path / "home" / "aoti_debug"
    assert is_closed(cache.directory())


def test_a_foreign_file_in_place_of_the_cache_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_file = main.run(["doctor"])
    shutil.rmtree(fallback(tmp_path), ignore_errors=True)
    plant(fallback(tmp_path), "file")
    model = tmp_path / "model.pt2"
    model.write_text("no package")
    assert main.run(["build", str(model)]) == 3
    assert main.run(["doctor"]) == without_file
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert main.run(["doctor"]) == 4
    assert "a bug in aoti-debug" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["file", "link", "open", "group"])
@pytest.mark.parametrize("place", ["beside", "temporary"])
def test_a_planted_build_directory_of_a_repro_is_not_used(tmp_path: Path, place: str, kind: str) -> None:
    folder = tmp_path / "repro"
    folder.mkdir()
    plant(folder / "build", kind)
    if place == "temporary":
        plant(tmp_path / "tmp" / f"repro-build-{os.getuid()}", kind)
    library = cpp_build.library_of(
        CppCompiler("c++", (), (), ()), 'extern "C" void f(int* x) { *x = 1; }\n', "f", folder
    )
    assert is_closed(library.parent)
    assert library.parent.parent == tmp_path / "tmp"
