from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.files import results_home
from aoti_debug.base.machine.files.results_home import HOME
from aoti_debug.runs.rundir import recorded_runs, run_directory
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, site

PACKAGE = make_manifest(site("cpp_fused_0", arg("buf0")))
FIRST, SECOND = "20261120-000000-1", "20261120-000000-2"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("AOTI_DEBUG_HOME", "AOTI_DEBUG_DIR"):
        monkeypatch.delenv(name, raising=False)
    results_home.mark(tmp_path / HOME)
    return tmp_path / HOME


def a_run(base: Path, name: str = FIRST, written: int = 0) -> Path:
    """A run that was written at a time; each is later than those before."""
    path = factories.run_directory(base, PACKAGE, JournalWriter(), name=name)
    os.utime(path / "run.json", (written, written))
    return path


def a_triage(path: Path, run: str | None, written: int) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "triage.json").write_text(json.dumps({"format": 1, "run": run}))
    os.utime(path / "triage.json", (written, written))
    (path.parent / "latest").unlink(missing_ok=True)
    (path.parent / "latest").symlink_to(path.name)
    return path


def test_after_a_triage_its_run_is_the_newest(home: Path) -> None:
    a_run(home / "runs", written=5)
    triage = home / "triages" / FIRST
    shown = a_run(triage / "runs", FIRST, written=1)
    a_run(triage / "runs", SECOND, written=2)
    a_triage(triage, f"runs/{FIRST}", written=6)
    assert run_directory.find() == run_directory.find("latest") == shown
    a_run(home / "runs", SECOND, written=7)
    assert run_directory.find() == home / "runs" / SECOND


@pytest.mark.parametrize(
    "folder",
    [
        *("compares/X/runs", "diffs/X/b", "replays/X/runs", "profiles/X/new/runs", "memory/X/runs"),
        *("bisects/X/runs", "compiled/X/graph0", "compiled/X/graph12"),
    ],
)
def test_the_runs_of_other_commands_are_found(home: Path, folder: str) -> None:
    a_run(home / "runs", written=5)
    path = a_run(home / folder.replace("X", SECOND), written=6)
    assert run_directory.find() == path
    assert run_directory.find(f"{folder.partition('/')[0]}/{SECOND}") == path
    assert run_directory.find(SECOND) == path
    assert f"{folder.partition('/')[0]}/{SECOND}" in recorded_runs.names()


def test_the_run_of_a_bisection_of_settings_is_that_of_its_newest_comparison(home: Path) -> None:
    a_run(home / "runs", written=5)
    folder = home / "bisects" / "settings-0123456789ab"
    a_run(folder / "compares" / FIRST / "runs", written=8)
    path = a_run(folder / "compares" / SECOND / "runs", written=6)
    assert run_directory.find() == run_directory.find(f"bisects/{folder.name}") == path
    assert f"bisects/{folder.name}" in recorded_runs.names()
    found = recorded_runs.newest()
    assert found is not None
    assert found.directory == folder
    (folder / "compares").rename(home / "bisects" / "compares")
    assert run_directory.find() == home / "runs" / FIRST


@pytest.mark.parametrize(
    "name", [f"triages/{SECOND}", SECOND, f"{HOME}/triages/{SECOND}", "triages/latest", f"{HOME}/triages"]
)
def test_the_names_of_a_triage(home: Path, name: str) -> None:
    shown = a_run(home / "triages" / SECOND / "runs", FIRST)
    a_triage(home / "triages" / SECOND, f"runs/{FIRST}", written=6)
    assert run_directory.find(name) == shown
    assert run_directory.is_run(name)


def test_a_triage_whose_model_was_never_called(home: Path) -> None:
    a_run(home / "runs", written=5)
    a_triage(home / "triages" / SECOND, None, written=6)
    with pytest.raises(RunDirError, match="has no run: its model was never called") as error:
        run_directory.find()
    assert error.value.hint.startswith("aoti-debug report ")
    assert run_directory.find(FIRST) == home / "runs" / FIRST


@pytest.mark.parametrize("name", ["../../runs/X", "/X", "runs/gone", 7, {"a": 1}])
def test_a_triage_names_no_run_outside_of_it(home: Path, name: object) -> None:
    outside = a_run(home / "runs", written=5)
    text = str(outside.parent) + str(name) if name == "/X" else name
    wanted = text.replace("X", FIRST) if isinstance(text, str) else text
    a_triage(home / "triages" / SECOND, None, written=6)
    (home / "triages" / SECOND / "triage.json").write_text(json.dumps({"run": wanted}))
    found = recorded_runs.find(f"triages/{SECOND}")
    assert found is not None
    assert found.run is None


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}', ""])
def test_a_triage_whose_record_is_damaged_has_the_newest_of_its_runs(home: Path, text: str) -> None:
    a_run(home / "triages" / SECOND / "runs", FIRST)
    path = a_run(home / "triages" / SECOND / "runs", SECOND)
    (home / "triages" / SECOND / "triage.json").write_text(text)
    found = recorded_runs.find(SECOND)
    assert found is not None
    assert (found.run, found.is_of_triage) == (path.resolve(), True)


def test_a_triage_that_was_killed_has_the_newest_of_its_runs(home: Path) -> None:
    a_run(home / "triages" / SECOND / "runs", FIRST)
    path = a_run(home / "triages" / SECOND / "runs", SECOND)
    assert run_directory.find() == path


def test_directories_of_earlier_versions_are_found(tmp_path: Path, home: Path) -> None:
    old = a_run(tmp_path / "aoti_debug_runs", written=5)
    assert run_directory.find() == run_directory.find(FIRST) == old
    shown = a_run(tmp_path / "aoti_debug_triages" / SECOND / "runs")
    a_triage(tmp_path / "aoti_debug_triages" / SECOND, f"runs/{FIRST}", written=6)
    assert run_directory.find() == run_directory.find(f"triages/{SECOND}") == shown


def test_a_folder_of_runs_that_is_the_working_directory_comes_first(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(home / "runs", written=9)
    path = a_run(tmp_path / "elsewhere", written=1)
    monkeypatch.chdir("elsewhere")
    monkeypatch.setenv("AOTI_DEBUG_HOME", str(home))
    assert run_directory.find() == path


def test_the_graph_that_was_called_last_is_the_newest_of_a_compilation(home: Path) -> None:
    a_run(home / "compiled" / FIRST / "graph10", written=5)
    path = a_run(home / "compiled" / FIRST / "graph2", written=6)
    assert run_directory.find() == path


def test_folders_that_hold_no_run_are_none(tmp_path: Path, home: Path) -> None:
    (tmp_path / "model/runs").mkdir(parents=True)
    (home / "compares" / FIRST).mkdir(parents=True)
    assert [recorded_runs.find(name) for name in (None, "model", ".", FIRST, "a\0b", "x" * 300)] == [None] * 6
    assert recorded_runs.names() == ()
