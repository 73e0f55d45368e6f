"""--open, on every command that writes a page."""

from __future__ import annotations

import importlib
import webbrowser
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.app.cli.lines import open_page
from tests.views.memory.small_call import recorded

COMMANDS = ("triage", "compare", "diff", "memory", "profile", "summaries", "report")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the browser was given."""
    found: list[str] = []

    def note(address: str) -> bool:
        found.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", note)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_it(name: str) -> None:
    command = importlib.import_module(f"aoti_debug.app.cli.commands.{name}").command
    assert "--open" in [option for parameter in command.params for option in parameter.opts]


def test_a_report_is_opened(tmp_path: Path, opened: list[str]) -> None:
    run = recorded(tmp_path)
    assert main.run(["report", str(run.path)]) == 0
    assert opened == []
    assert main.run(["report", str(run.path), "--open"]) == 0
    assert opened == [(run.path / "report/index.html").resolve().as_uri()]


def test_it_writes_the_page_as_well(tmp_path: Path, opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run, page = recorded(tmp_path), tmp_path / "a page.html"
    assert main.run(["memory", str(run.path), "--open", "-o", str(page)]) == 0
    assert page.is_file()
    assert opened == [page.as_uri()]
    assert f"page: {page}" in capsys.readouterr().out


@pytest.mark.parametrize("fails", [False, True])
def test_without_a_browser(fails: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(address: str) -> bool:
        if fails:
            raise webbrowser.Error("no browser")
        return False

    monkeypatch.setattr(webbrowser, "open", fail)
    open_page("http://127.0.0.1/")
    assert "no browser could be started" in capsys.readouterr().err
