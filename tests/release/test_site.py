"""The pages of the documentation site: links that lead to where pages are there, lists, the reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from release import reports, site
from tests import document_text as text
from tests.paths import ROOT


def test_links_lead_to_where_pages_are_on_the_site() -> None:
    markdown = "[a](../README.md#install) [b](triage.md#x) [c](../runtime_shims/aoti_debug.h) `[d](e.md)` [f](#g) [h](https://i)"
    moved, linked = site.page(markdown, "docs/repro.md")
    assert text.links(moved) == [
        "index.md#install",
        "triage.md#x",
        "source/runtime_shims/aoti_debug.h",
        "#g",
        "https://i",
    ]
    assert "`[d](e.md)`" in moved
    assert linked == {"README.md", "docs/triage.md", "runtime_shims/aoti_debug.h"}
    assert text.links(site.page("[a](../triage.md) [b](../../README.md)", "docs/tutorials/nan.md")[0]) == [
        "../triage.md",
        "../index.md",
    ]


def test_a_link_with_the_name_of_a_page_shows_its_title() -> None:
    moved, _ = site.page("See [triage.md](triage.md#verdicts), [its `x`](triage.md).", "docs/repro.md")
    assert moved == "See [Triage](triage.md#verdicts), [its `x`](triage.md).\n"


def test_a_list_has_an_empty_line_before_it() -> None:
    moved, _ = site.page("Text:\n* a\n  more\n   * nested\n* b\n\n```\nx\n* y\n```\n", "docs/a.md")
    assert moved == "Text:\n\n* a\n  more\n    * nested\n* b\n\n```\nx\n* y\n```\n\n"


def test_the_order_of_the_pages_is_that_of_the_list() -> None:
    sections = site.navigation((ROOT / "docs/README.md").read_text())
    names = [next(iter(section)) for section in sections]
    assert names == ["Home", "Tutorials", "How to", "Reference", "Background", "Project"]
    pages = [page for section in sections for page in next(iter(section.values()))]
    assert pages[:3] == ["index.md", "pages.md", "tutorials/illegal-access.md"]
    assert {"Python functions": "reference/python.md"} in pages
    assert "agents.md" in pages
    with pytest.raises(LookupError, match="no page in"):
        site.navigation("## A\n| [x] | y |\n")


def test_the_reference_has_every_command_name_and_schema() -> None:
    commands = site.commands_page()
    assert [line for line in commands.splitlines() if line.startswith("## ")] == [
        f"## aoti-debug {n}" for n in main.VERBS
    ]
    assert "--json-schema NAME" in commands
    python = site.python_page()
    assert "aoti_debug.open_run(" in python
    assert "* `level`: " in python
    schemas = {path.name.partition(".")[0] for path in (ROOT / "docs").glob("*.schema.json")}
    assert {line.removeprefix("## ") for line in site.json_page().splitlines() if line.startswith("## ")} == schemas


def test_types_in_words() -> None:
    assert site.type_text({"type": ["string", "null"]}) == "string or null"
    assert site.type_text({"enum": ["ok", None]}) == "one of `ok`, `null`"
    assert site.type_text({"anyOf": [{"type": "array"}, {"const": 1}]}) == "array or `1`"


def test_all_is_written(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "nan.html").write_text("page")
    (made / "reports.json").write_text(json.dumps({"nan": {"title": "NaN", "typed": "$ x"}}))
    site.write(tmp_path / "docs", made)
    configuration = json.loads((tmp_path / "mkdocs.yml").read_text())
    pages = [page for section in configuration["nav"] for page in next(iter(section.values()))]
    files = {name for page in pages for name in ([page] if isinstance(page, str) else page.values())}
    assert {name for name in files if not (tmp_path / "docs" / name).is_file()} == set()
    assert (tmp_path / "docs/reports/nan.html").read_text() == "page"
    assert (tmp_path / "docs/source/runtime_shims/formats/journal_format.h").is_file()


def test_the_reports_are_of_examples_that_there_are() -> None:
    commands = [command.split() for _, typed, _ in reports.REPORTS.values() for command in typed]
    assert {words[1] for words in commands if words[0] == "python" and not (ROOT / words[1]).is_file()} == set()
    assert {words[1] for words in commands if words[0] == "aoti-debug"} <= set(main.VERBS)
