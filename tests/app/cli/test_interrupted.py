from __future__ import annotations

import signal
from pathlib import Path

import click
import pytest

from aoti_debug.app.cli import main
from aoti_debug.app.cli.interrupted import interrupted_lines
from aoti_debug.base.machine.files import stamped_directories
from tests.runs.show.recorded import level_2


def test_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = level_2(Path("aoti-debug/runs")).path.resolve()
    triage = tmp_path / "aoti-debug/triages/20261120-231500-4711"
    inner = triage / "runs/20261120-231502-4711"
    inner.mkdir(parents=True)
    assert interrupted_lines([run, triage, inner, tmp_path / "gone"]) == [
        "interrupted",
        f"kept: aoti-debug/runs/{run.name}, 3 launches in 1 call",
        "next: aoti-debug show",
        f"kept: aoti-debug/triages/{triage.name}",
    ]
    assert interrupted_lines([tmp_path / "gone"]) == ["interrupted: nothing is kept"]


def test_an_interrupted_command_names_what_it_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    @click.command("doctor")
    def interrupted() -> None:
        made.append(stamped_directories.create(tmp_path / "runs"))
        signal.raise_signal(signal.SIGINT)

    stamped_directories.create(tmp_path / "runs")  # by something else
    monkeypatch.setattr("aoti_debug.app.cli.commands.doctor.command", interrupted)
    assert main.run(["doctor"]) == main.INTERRUPTED
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-2:]) == ("", ["interrupted", f"kept: {made[0]}"])
