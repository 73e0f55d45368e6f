"""The options that `run` and `exec` have in common."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import click
import pytest

from aoti_debug.app.cli.commands.exec import command as exec_command
from aoti_debug.app.cli.commands.run import command as run_command
from aoti_debug.app.cli.recording_options import RecordingOptions, recording, shown
from aoti_debug.base.errors import UsageError
from aoti_debug.runs.run.options import RunOptions, Shown

NAMES = [field.name for field in fields(RecordingOptions)]


def told(command: click.Command) -> dict[str, object]:
    """The shared options of a command, as data."""
    return {str(one.name): one.to_info_dict() for one in command.params if one.name in NAMES}


def test_both_commands_declare_them_alike() -> None:
    of_run, of_exec = told(run_command), told(exec_command)
    assert list(of_run) == list(of_exec) == NAMES
    assert {name for name in NAMES if of_run[name] != of_exec[name]} == {"level"}  # its default differs


def parsed(*words: str) -> RecordingOptions:
    found: list[RecordingOptions] = []

    @click.command()
    @recording("3")
    def command(*, recording: RecordingOptions) -> None:
        found.append(recording)

    command(words, standalone_mode=False)
    return found[0]


def test_without_any_the_environment_and_the_package_decide() -> None:
    assert parsed().of(Path("m.pt2"), is_level_given=False) == RunOptions(Path("m.pt2"), shown=Shown.VALUES)


def test_what_is_given() -> None:
    words = ["--level", "1", "--filter", "a*", "--filter", "!b", "--module", "m", "--line", "x.py:3", "--phase", "both"]
    words += [
        "--flight",
        "5",
        "--launch",
        "0.1",
        "--launch",
        "0.2",
        "--watch",
        "*: nan",
        "--on-hit",
        "stop",
        "--guards",
    ]
    words += ["--summaries", "--out", "there", "-q"]
    assert parsed(*words).of(Path("m.pt2"), is_level_given=True, summaries=7) == RunOptions(
        Path("m.pt2"),
        level=1,
        filters=("a*", "!b"),
        modules=("m",),
        lines=("x.py:3",),
        phase="both",
        flight=5,
        launch="0.1,0.2",
        watch=("*: nan",),
        on_hit="stop",
        guards=True,
        summaries=7,
        out=Path("there"),
        shown=Shown.NOTHING,
    )


def test_verbose_and_quiet_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="-v and -q exclude each other"):
        parsed("-v", "-q").of(Path("m.pt2"), is_level_given=False)


@pytest.mark.parametrize(
    ("flags", "on_a_terminal", "in_a_pipe"),
    [
        ({}, Shown.VALUES, Shown.VALUES),
        ({"is_level_given": True}, Shown.VALUES, Shown.ALL),
        ({"verbose": True}, Shown.ALL, Shown.ALL),
        ({"quiet": True, "is_level_given": True}, Shown.NOTHING, Shown.NOTHING),
    ],
)
def test_what_a_run_prints(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, bool], on_a_terminal: Shown, in_a_pipe: Shown
) -> None:
    known = {"verbose": False, "quiet": False, "is_level_given": False} | flags
    assert shown(**known) is in_a_pipe
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert shown(**known) is on_a_terminal


def test_two_flags_that_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="-v and -q exclude each other"):
        shown(verbose=True, quiet=True, is_level_given=False)
