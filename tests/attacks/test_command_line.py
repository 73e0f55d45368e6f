"""Malformed and hostile command lines."""

from __future__ import annotations

import os
import shlex
import zipfile
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from tests.received import a_run

LONG = "x" * 300


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with an exported program (of which nothing is read here), a text, a run and things that are no files."""
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("program.pt2", "w") as archive:
        archive.writestr("model/models/model.json", "{}")
    Path("text.pt2").write_text("text")
    a_run(tmp_path / "aoti-debug/runs")
    Path("folder.pt").mkdir()
    os.mkfifo("fifo.pt")
    os.mkfifo("fifo.pt2")


@pytest.mark.parametrize(
    "command",
    [
        f"build program.pt2 -o {LONG}.pt2",
        f"build program.pt2 -o {LONG}/m.pt2",
        f"build program.pt2 --inputs {LONG}",
        f"build program.pt2 --keep-sources {LONG}",
        f"build {LONG}.pt2",
        f"run {LONG}.pt2",
        f"run text.pt2 --out {LONG}",
        f"run text.pt2 --inputs {LONG}",
        f"run text.pt2 --load-library {LONG}",
        f"triage program.pt2 --out {LONG}",
        f"triage {LONG}",
        f"show {LONG}",
        f"show --run {LONG}",
        f"report {LONG}",
        f"report -o {LONG}",
        f"bundle {LONG}",
        f"bundle -o {LONG}.zip",
        f"repro first -o {LONG}",
        f"repro {LONG}",
        "show a\0b",
        "report a\0b",
        "bundle -o a\0b.zip",
        "run a\0b.pt2",
        "show \udc80",
        "run \udc80.pt2",
    ],
)
def test_names_that_no_file_can_have(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    no_run = (f"show --run {LONG}", f"report {LONG}", f"bundle {LONG}", "report a\0b")
    code = 6 if command in no_run else 3 if command == "run \udc80.pt2" else 2
    assert main.run(command.split(" ")) == code
    capsys.readouterr().err.encode()


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("run text.pt2 --timeout nan", 2, "--timeout nan is not greater than 0"),
        ("run text.pt2 --stall nan", 2, "--stall nan is not greater than 0"),
        ("triage text.pt2 --timeout nan", 2, "nan is not a number of seconds"),
        ("run fifo.pt2", 3, "fifo.pt2 is a FIFO, not a .pt2"),
        ("build fifo.pt2", 3, "fifo.pt2 is a FIFO, not a .pt2"),
        ("triage /dev/zero", 3, "/dev/zero is a device, not a .pt2"),
        ("build program.pt2 --inputs folder.pt", 3, "folder.pt is not a file: it is a directory"),
        ("run text.pt2 --inputs folder.pt", 3, "folder.pt is not a file: it is a directory"),
        ("run text.pt2 --inputs fifo.pt", 3, "fifo.pt is not a file: it is a FIFO"),
        ("run text.pt2 --inputs /dev/zero", 3, "/dev/zero is not a file: it is a device"),
        ("run text.pt2 --inputs none.pt", 3, "none.pt does not exist"),
    ],
)
def test_words_that_make_no_sense(command: str, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(command.split()) == code
    assert message in capsys.readouterr().err


def test_guards_need_a_level_that_checks_them(faulty_package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", str(faulty_package), "--guards", "--level", "0"]) == 2
    assert "--guards needs a level above 0" in capsys.readouterr().err


def test_the_next_command_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "a; touch owned"
    assert main.run(["repro", "first", "-o", str(output)]) == 0
    (following,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("next: "))
    assert shlex.split(following.removeprefix("next: ")) == ["python", str(output / "repro.py")]
