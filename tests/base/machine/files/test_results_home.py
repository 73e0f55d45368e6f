from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.files import results_home, stamped_directories
from aoti_debug.base.machine.files.results_home import HOME, MARKER, SECOND_HOME, ResultKind


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AOTI_DEBUG_HOME", "AOTI_DEBUG_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_new_home_has_its_marker_and_git_ignores_it(tmp_path: Path) -> None:
    made = stamped_directories.create(ResultKind.TRIAGES.place())
    assert made.parent == tmp_path / HOME / "triages"
    assert results_home.is_home(Path(HOME))
    (made / "triage.json").touch()
    subprocess.run(["git", "init", "--quiet"], check=True)
    found = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True)
    assert found.stdout == ""


def test_nothing_is_made_by_asking(tmp_path: Path) -> None:
    assert ResultKind.RUNS.place() == Path(HOME, "runs")
    assert ResultKind.RUNS.places() == (Path(HOME, "runs"), Path("aoti_debug_runs"))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / HOME / "runs").mkdir(parents=True)
    assert stamped_directories.create(ResultKind.RUNS.place()).parent == tmp_path / SECOND_HOME / "runs"
    assert [path.name for path in (tmp_path / HOME).iterdir()] == ["runs"]
    (tmp_path / SECOND_HOME / MARKER).unlink()
    with pytest.raises(UsageError, match=f"{HOME} and {SECOND_HOME} are not of aoti-debug") as error:
        ResultKind.RUNS.place()
    assert "AOTI_DEBUG_HOME=DIR" in error.value.hint
    assert ResultKind.RUNS.places() == (Path("aoti_debug_runs"),)


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: results_home.mark(path), lambda path: None])
def test_a_free_place_and_a_home_are_taken(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / HOME)
    assert results_home.home() == Path(HOME)


def test_a_file_or_a_link_to_nowhere_is_not(tmp_path: Path) -> None:
    (tmp_path / HOME).symlink_to("gone")
    assert results_home.home() == Path(SECOND_HOME)
    (tmp_path / SECOND_HOME).touch()
    with pytest.raises(UsageError):
        results_home.home()


def test_the_environment_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_DEBUG_HOME", str(tmp_path / "a/b"))
    made = stamped_directories.create(ResultKind.DIFFS.place())
    assert (made.parent, results_home.is_home(tmp_path / "a/b")) == (tmp_path / "a/b/diffs", True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    monkeypatch.setenv("AOTI_DEBUG_HOME", "mine")
    with pytest.raises(UsageError, match="mine is not of aoti-debug: the marker"):
        ResultKind.DIFFS.place()


def test_the_environment_names_the_place_of_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_DEBUG_DIR", "elsewhere")
    assert ResultKind.RUNS.place() == Path("elsewhere")
    assert ResultKind.TRIAGES.place() == Path(HOME, "triages")
    stamped_directories.create(ResultKind.RUNS.place())
    assert not Path(HOME).exists()


def test_in_a_home_it_is_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results_home.mark(tmp_path / HOME)
    monkeypatch.chdir(HOME)
    assert stamped_directories.create(ResultKind.RUNS.place()).parent == tmp_path / HOME / "runs"


def test_other_places_are_not_marked(tmp_path: Path) -> None:
    stamped_directories.create(tmp_path / "mine/runs")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["runs"]


def test_a_home_goes_with_the_last_of_it(tmp_path: Path) -> None:
    base = ResultKind.RUNS.place()
    stamped_directories.remove(stamped_directories.create(base), base)
    assert list(tmp_path.iterdir()) == []
    first = stamped_directories.create(ResultKind.TRIAGES.place())
    stamped_directories.remove(stamped_directories.create(base), base)
    assert first.is_dir()
