"""Defaults of options from pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aoti_debug.app.cli import main, project_defaults
from aoti_debug.app.cli.commands.run import command as run
from aoti_debug.app.cli.commands.triage import command as triage
from aoti_debug.base.errors import UsageError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")


def project(text: str, folder: str = ".") -> Path:
    path = Path(folder) / "pyproject.toml"
    path.write_text(text)
    return path


def test_options_have_the_defaults_of_the_nearest_file() -> None:
    project("[tool.aoti-debug.triage]\ntries = 9\n", "../..")
    project('[tool.aoti-debug.triage]\ntimeout = 5\nbuild_timeout = 7.5\nguards = true\ninf = "warn"\n', "..")
    found = project_defaults.defaults_of(triage, "triage", main.VERBS)
    assert found == {"stall": 5, "build_timeout": 7.5, "guards": True, "infinities": "warn"}
    assert project_defaults.defaults_of(run, "run", main.VERBS) == {}


def test_lists_are_options_that_are_repeatable() -> None:
    project('[tool.aoti-debug.run]\nfilter = ["triton_*", "!softmax"]\n')
    assert project_defaults.defaults_of(run, "run", main.VERBS) == {"filters": ["triton_*", "!softmax"]}


def test_a_project_without_the_table() -> None:
    assert project_defaults.defaults_of(triage, "triage", main.VERBS) == {}
    project("[tool.ruff]\nline-length = 120\n")
    assert project_defaults.defaults_of(triage, "triage", main.VERBS) == {}


@pytest.mark.parametrize("option", ["trust", "import", "load-library", "load_library"])
def test_what_executes_code_is_not_taken(option: str) -> None:
    project(f"[tool.aoti-debug.triage]\n{option} = true\n")
    with pytest.raises(UsageError, match="what executes code is taken from the command line alone"):
        project_defaults.defaults_of(triage, "triage", main.VERBS)


def test_every_option_that_executes_code_is_known() -> None:
    """An option that names a module, a library or a function, of whichever command."""
    executing = {
        text
        for name in main.VERBS
        for parameter in (main.group.get_command(None, name) or run).params  # type: ignore[arg-type]
        for text in parameter.opts
        if text.startswith("--") and any(word in (parameter.metavar or "") for word in ("MODULE", "FUNCTION"))
    }
    assert executing == project_defaults.REFUSED - {"--trust", "--load-library"}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[tool.aoti-debug.tiage]\n", "has tiage, which is no table of a command", "perhaps triage"),
        ("[tool.aoti-debug]\ncalls = 3\n", "has calls, which is no table of a command", "as [tool.aoti-debug.triage]"),
        ("[tool.aoti-debug.triage]\ncals = 3\n", "has cals: there is no option --cals", "perhaps --calls"),
        ("[tool.aoti-debug.triage]\nguards = 3\n", "guards is true or false", ""),
        ("[tool.aoti-debug.triage]\ncalls = [3]\n", "calls is one value", ""),
        ('[tool.aoti-debug.triage]\ninductor-config = "a=1"\n', "inductor-config is a list", ""),
        ("[tool.aoti-debug.triage\n", "pyproject.toml: ", ""),
        ("[tool]\naoti-debug = 3  # tool.aoti-debug\n", "is no table", "as [tool.aoti-debug.triage]"),
    ],
)
def test_mistakes(text: str, message: str, hint: str) -> None:
    path = project(text)
    with pytest.raises(UsageError) as error:
        project_defaults.defaults_of(triage, "triage", main.VERBS)
    assert str(error.value).startswith(str(path.resolve()))
    assert message in str(error.value)
    assert error.value.hint == hint


def test_a_file_of_another_user_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    project("[tool.aoti-debug.triage]\ncalls = 3\n")
    owner = os.stat("pyproject.toml").st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert project_defaults.defaults_of(triage, "triage", main.VERBS) == ({} if owner else {"calls": 3})


def test_the_command_line_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    path = project('[tool.aoti-debug.show]\nphase = "befor"\n').resolve()
    assert main.run(["show"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: Invalid value for '--phase': 'befor' is not one of")
    assert main.run(["show", "--phase", "before"]) == 6
    assert capsys.readouterr().err.startswith("error: no runs in ")
    project("[tool.aoti-debug.show]\nphase = 3\ntrust = true\n")
    assert main.run(["show"]) == 2
    assert main.run(["show", "--help"]) == 0
