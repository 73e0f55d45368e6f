"""What is listed, and what of it is deleted: never anything that this tool has not made."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from aoti_debug.app.cli.commands.list import list_lines
from aoti_debug.app.made_results import Unwanted, delete, made_results, unwanted
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.files import results_home, stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.runs.rundir import run_directory, run_json
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, site
from tests.views.report.subjects import triage

PACKAGE = make_manifest(site("cpp_fused_0", arg("buf0")))
HOME = Path("aoti-debug")
CLEAN = Exit(ExitKind.CLEAN)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AOTI_DEBUG_HOME", "AOTI_DEBUG_DIR"):
        monkeypatch.delenv(name, raising=False)
    results_home.mark(HOME)


def stamp(days: float, pid: int = 4194304) -> str:
    """The name of a directory that was made so many days ago, by a process that is no more."""
    return f"{datetime.fromtimestamp(time.time() - days * 86400):%Y%m%d-%H%M%S}-{pid}"


def a_run(days: float, base: Path = HOME / "runs", exit_: Exit = CLEAN) -> Path:
    command = ["aoti-debug", "run", "m.pt2"]
    return factories.run_directory(base, PACKAGE, JournalWriter(), name=stamp(days), exit=exit_, command=command)


def a_repro(name: str) -> Path:
    path = HOME / "repros" / name
    path.mkdir(parents=True)
    (path / "repro.py").write_text("#!/usr/bin/env python3\n# written by  aoti-debug 0.1.0\n")
    return path


def names() -> list[str]:
    return [result.name for result in made_results()]


def test_each_kind_is_listed_and_described() -> None:
    run, failed = a_run(2), a_run(1, exit_=Exit(ExitKind.FAULT, "SIGSEGV\nframe #0"))
    cut_short = a_run(3, exit_=Exit(ExitKind.CLEAN, "the recording stopped before the end"))
    made = triage(HOME / "triages").path
    a_repro("repro_cpp_fused_0_0.0")
    found = {result.name: result for result in made_results()}
    assert list(found) == [
        f"runs/{cut_short.name}",
        f"runs/{run.name}",
        f"runs/{failed.name}",
        f"triages/{made.name}",
        "repros/repro_cpp_fused_0_0.0",
    ]
    assert found[f"runs/{run.name}"].description == "no fault (m.pt2)"
    assert found[f"runs/{cut_short.name}"].description == "no fault recorded (m.pt2)"
    assert found[f"runs/{failed.name}"].description == "fault: SIGSEGV (m.pt2)"
    assert found[f"triages/{made.name}"].description.endswith("(m.pt2)")
    assert (found[f"runs/{run.name}"].bytes or 0) > 4096
    assert abs(found[f"runs/{run.name}"].made - (time.time() - 2 * 86400)) < 60


def test_what_cannot_be_read_is_listed_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, hidden = a_run(1), a_run(2)
    listdir = os.listdir

    def refused(path: Path | str = ".") -> list[str]:
        if Path(path).name == hidden.name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refused)
    results = made_results()
    assert [result.description for result in results] == ["cannot be read: Permission denied", "no fault (m.pt2)"]
    lines = list_lines(results, [None, 8192], time.time(), 120)
    assert f"runs/{hidden.name}" in lines[2]
    assert "?" in lines[2]
    assert f"runs/{kept.name}" in lines[3]
    assert lines[-1] == "2 directories, 8.0 KiB, without 1 that cannot be read completely"


def test_a_run_of_a_package_that_a_command_has_built_has_the_name_of_the_model() -> None:
    run = a_run(1, HOME / "memory" / stamp(1) / "runs")
    run_json.write(replace(run_json.read(run), command=("aoti-debug", "run", "p/package.pt2"), built_from="m.pt2"), run)
    (result,) = made_results()
    assert (result.description, result.summary.model) == ("no fault (m.pt2)", "m.pt2")


def test_compiled_graphs_and_bundles_are_listed() -> None:
    compiled = HOME / "compiled" / stamp(1)
    for graph in ("graph0", "graph1"):
        (compiled / graph).mkdir(parents=True)
    (HOME / "bundles").mkdir()
    for name in ("run_20261120-231501-4711.zip", "photos.zip"):
        (HOME / "bundles" / name).write_bytes(b"PK")
    found = {result.name: result.description for result in made_results()}
    assert found == {f"compiled/{compiled.name}": "2 compiled graphs", "bundles/run_20261120-231501-4711.zip": ""}


def test_every_name_is_taken_by_other_commands() -> None:
    a_run(2)
    triage(HOME / "triages")
    for name in names():
        assert run_directory.find(name).is_dir()


def test_a_run_that_nobody_has_ended_is_not_running() -> None:
    a_run(1, exit_=Exit(ExitKind.RUNNING))
    (result,) = made_results()
    assert result.description == "aborted (m.pt2)"
    assert not result.is_in_use


def test_a_damaged_run_says_so() -> None:
    (a_run(1) / "run.json").write_text("{")
    (result,) = made_results()
    assert result.description.startswith("cannot be read: ")


def test_directories_of_earlier_versions_are_listed_by_their_paths() -> None:
    path = a_run(1, Path("aoti_debug_runs"))
    assert names() == [f"aoti_debug_runs/{path.name}"]
    delete(made_results())
    assert not Path("aoti_debug_runs").exists()


def test_what_is_not_ours_is_neither_listed_nor_deleted(tmp_path: Path) -> None:
    mine = [
        HOME / "runs/notes",
        HOME / "mine" / stamp(9),
        HOME / "repros/mine",
        HOME / "minified/mine",
        Path("runs") / stamp(9),
    ]
    for path in mine:
        path.mkdir(parents=True)
    (HOME / "repros/mine/repro.py").write_text("import torch")
    (HOME / "runs" / stamp(8)).symlink_to(tmp_path)
    a_run(1)
    delete(made_results())
    assert names() == []
    assert all(path.is_dir() for path in mine)
    assert (HOME / "runs" / stamp(8)).is_symlink() or list((HOME / "runs").glob("2*"))


def test_in_a_directory_that_is_no_home_a_date_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_DEBUG_DIR", "backups")
    mine = Path("backups") / stamp(9)
    mine.mkdir(parents=True)
    run = a_run(1, Path("backups"))
    assert names() == [f"backups/{run.name}"]
    delete(made_results())
    assert mine.is_dir()
    assert not run.exists()


def test_what_a_process_still_writes_is_in_use() -> None:
    running = factories.run_directory(
        HOME / "runs",
        PACKAGE,
        JournalWriter(),
        name=stamp(0, os.getpid()),
        pid=os.getpid(),
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        exit=Exit(ExitKind.RUNNING),
    )
    begun = HOME / "compares" / stamp(0, os.getpid())
    begun.mkdir(parents=True)
    (HOME / "diffs" / stamp(0)).mkdir(parents=True)
    used = {result.name: result.is_in_use for result in made_results()}
    assert used == {
        f"runs/{running.name}": True,
        f"compares/{begun.name}": True,
        f"diffs/{next((HOME / 'diffs').iterdir()).name}": False,
    }


def test_deleting_the_newest_moves_the_link() -> None:
    old, new = a_run(2), a_run(1)
    delete(unwanted(made_results(), Unwanted((f"runs/{new.name}",))))
    assert (HOME / "runs/latest").resolve() == old.resolve()
    delete(made_results())
    assert not HOME.exists()


def test_what_is_chosen() -> None:
    runs = [a_run(days).name for days in (9, 5, 1)]
    compare = stamped_directories.create(ResultKind.COMPARES.place()).name
    found = made_results()

    def chosen(**wanted: object) -> list[str]:
        return [result.path.name for result in unwanted(found, Unwanted(**wanted))]  # type: ignore[arg-type]

    assert chosen() == [*runs, compare]
    assert chosen(older_than=4.0) == runs[:2]
    assert chosen(keep=1) == runs[:2]
    assert chosen(keep=2, older_than=4.0) == runs[:1]
    assert chosen(names=(runs[1], f"compares/{compare}", f"aoti-debug/runs/{runs[1]}")) == [runs[1], compare]
    with pytest.raises(UsageError, match="'runs/2026' is nothing that aoti-debug has made here") as error:
        chosen(names=("runs/2026",))
    assert f"runs/{runs[0]}" in error.value.hint
