"""`aoti-debug guide`: the page names what exists, and every `--json` has its schema."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from aoti_debug.app.cli import main
from aoti_debug.app.cli.commands import guide
from aoti_debug.base import errors
from tests import document_text as text
from tests.paths import ROOT
from tests.test_documentation import known_options, options_of_commands, wrong_options

SCHEMAS = sorted(path.name for path in (ROOT / "docs").glob("*.schema.json"))


def test_the_page_is_one_page() -> None:
    lines = guide.guide_lines()
    assert len(lines) <= 80
    assert [line for line in lines if len(line) > 80] == []


def test_commands_and_options_of_the_page_exist() -> None:
    lines = guide.guide_lines()
    assert set(text.commands(lines)) - set(main.VERBS) - {"for"} == set()  # "aoti-debug for coding agents"
    assert wrong_options(text.option_uses(lines), known_options()) == []
    assert len(text.option_uses(lines)) > 20


def test_every_exit_code_is_on_the_page() -> None:
    page = "\n".join(guide.guide_lines())
    codes = text.first_cells(text.section((ROOT / "docs/commands.md").read_text(), "Exit codes"))
    listed = set(re.findall(r"\b\d+(?= [a-z])", page.partition("EXIT CODES")[2].partition("repro.py:")[0]))
    assert listed == set(codes) - {str(main.CLOSED_PIPE)}
    assert str(errors.EXIT_INCOMPLETE) in listed


@pytest.mark.parametrize(
    "command", [name for name in main.VERBS if "--json" in options_of_commands()[f"aoti-debug {name}"]]
)
def test_every_command_with_json_prints_its_schema_and_names_it(command: str) -> None:
    assert main.run(["guide", "--json-schema", command]) == 0
    printed = CliRunner().invoke(guide.command, ["--json-schema", command]).output
    assert json.loads(printed)["title"] == f"aoti-debug {command} --json"
    shown = CliRunner().invoke(main.group, [command, "--help"]).output
    assert f"--json-schema{command}." in "".join(shown.split())  # lines break at hyphens, too


def test_the_schemas_are_those_of_the_documents() -> None:
    links = {path.name: path.resolve() for path in (ROOT / "aoti_debug/app/cli/schemas").iterdir()}
    assert links == {name: ROOT / "docs" / name for name in SCHEMAS}


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["guide", "--json-schema", "nothing"]) == 2
    assert "'triage'" in capsys.readouterr().err
