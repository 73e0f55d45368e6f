"""The pages of `invariance`, `equal` and `precision`: what they say, how they are kept, and how they fit a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.bisect.equal_result import EqualEnd
from aoti_debug.compare.invariance.remedies import RemedyTrial, candidates
from aoti_debug.views.report import answer_page
from aoti_debug.views.report.answer_page import AnswerCell, AnswerPage
from tests.compare.bisect.test_equal_result import BASELINE, EQUAL, FOUND
from tests.compare.chains import chain
from tests.compare.invariance.made_runs import by_size, double, made
from tests.compare.what_if.rounded import rounded_model
from tests.views.report.chromium import BEYOND, WIDTHS, Browser, needs_chromium

ADD = ("aten.add.Tensor",) * 12
EVIL = "<img src=x onerror=alert(1)>.pt2"


def of_invariance(base: Path) -> AnswerPage:
    found = made(base, [double, by_size, double], operator="aten.addmm.out")
    changes, *_ = candidates([found.begins[0].first.launch.site], "cpu")
    trials = (RemedyTrial(changes, None, "a compiler is missing"), RemedyTrial(changes, made(base / "b", [double])))
    return answer_page.of_invariance(found, trials, None, EVIL)


def of_equal(base: Path) -> AnswerPage:
    return answer_page.of_equal(replace(FOUND, directory=str(base)), EVIL)


def of_precision(base: Path) -> AnswerPage:
    return answer_page.of_precision(rounded_model(chain(base, ADD)), EVIL)


MAKERS = pytest.mark.parametrize("make", [of_invariance, of_equal, of_precision])


def rows(answer: AnswerPage, title: str) -> list[list[str]]:
    """The texts of the rows of a table."""
    (table,) = (table for table in answer.tables if table.title == title)
    return [[cell.text for cell in row.cells] for row in table.rows]


def test_a_sample_that_varies(tmp_path: Path) -> None:
    answer = of_invariance(tmp_path)
    assert (answer.kind, answer.tone, answer.verdict) == ("VARIES", "bad", "VARIES from 0.1 cpp_1 on")
    (first,) = rows(answer, "Where the bits of the sample begin to differ")
    assert first == ["0.1", "cpp_1", "read the same bits of the sample, and wrote others"]
    assert rows(answer, "Launches in each run") == [
        ["0.1", "cpp_1", "", "begins", "begins"],
        ["0.2", "cpp_2", "", "passes on", "passes on"],
    ]
    (table,) = (table for table in answer.tables if table.title == "Launches in each run")
    assert table.facts[0] == "Not listed: 1 launch with the same bits of the sample in every run."
    built = rows(answer, "What was built to help")
    assert [row[1] for row in built] == ["a compiler is missing", made(tmp_path / "c", [double]).verdict]


def test_a_sample_with_the_same_bits(tmp_path: Path) -> None:
    answer = answer_page.of_invariance(made(tmp_path, [double]), (), None, "model.pt2")
    assert (answer.kind, answer.tone) == ("INVARIANT", "good")
    assert [table.title for table in answer.tables] == ["Launches in each run"]
    assert answer.tables[0].rows == ()


def test_what_makes_it_equal(tmp_path: Path) -> None:
    answer = of_equal(tmp_path)
    assert (answer.kind, answer.tone) == ("EQUAL", "open")
    assert answer.verdict.startswith("EQUAL with 2 changes, each is needed")
    assert answer.facts[0].startswith("kind    rounding")
    assert rows(answer, "What makes it equal")[0][1] == "0.1 cpp_fused_gelu_1 (model.py:7)"
    assert [row[1] for row in rows(answer, "Builds")] == ["1", "0"]
    bars = [row.cells[1].bar for table in answer.tables if table.title == "Builds" for row in table.rows]
    assert bars == [1.0, 0.0]


@pytest.mark.parametrize(
    ("end", "tone", "kind"),
    [
        (EqualEnd.ALREADY, "good", "EQUAL ALREADY"),
        (EqualEnd.CANNOT, "bad", "CANNOT BE MADE EQUAL"),
        (EqualEnd.UNFINISHED, "open", "NOT FINISHED"),
        (EqualEnd.UNKNOWN, "open", "not comparable"),
    ],
)
def test_other_ends(end: EqualEnd, tone: str, kind: str) -> None:
    found = replace(FOUND, end=end, steps=(), best=BASELINE, trials=(BASELINE, EQUAL), reason="it is late")
    answer = answer_page.of_equal(found, "model.pt2")
    assert (answer.tone, answer.kind) == (tone, kind)
    unequal = [table for table in answer.tables if table.title == "Launches that stay unequal"]
    assert unequal[0].rows[0].note.startswith("aten.erf.default: ")


def test_a_bug_is_red() -> None:
    wrong = replace(BASELINE, wrong="0.1 cpp_fused_gelu_1 is wrong")
    answer = answer_page.of_equal(replace(FOUND, trials=(wrong, EQUAL)), "model.pt2")
    assert answer.tone == "bad"


def test_modules_that_were_rounded(tmp_path: Path) -> None:
    answer = of_precision(tmp_path)
    assert (answer.tone, answer.verdict.partition(":")[0]) == ("open", "KEEP 2 of 3 modules as they are")
    first, second, third, whole = next(t for t in answer.tables if t.title == "The most sensitive first").rows
    assert [row.cells[2].tone for row in (first, second, third, whole)] == ["bad", "bad", "good", "bad"]
    assert [row.cells[2].bar for row in (first, whole)] == [1.0, 1.0]
    assert second.cells[2].bar == pytest.approx(1 - 1.699 / 6, abs=1e-3)
    assert whole.cells[0] == AnswerCell("all at once")
    assert next(row[:2] for row in rows(answer, "Several modules at once")) == ["0", "NaN/Inf"]


def test_rows_that_are_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoti_debug.views.report.answer_page.MAX_ROWS", 2)
    table = of_precision(tmp_path).tables[0]
    assert ([row.cells[0].text for row in table.rows][1], table.hidden) == ("all at once", 2)


@MAKERS
def test_it_is_kept_and_found_and_written(
    make: Callable[[Path], AnswerPage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = make(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "aoti-debug" / "diffs" / "20261127-120000-17"
    folder.mkdir(parents=True)
    (tmp_path / "aoti-debug" / ".aoti-debug").touch()
    answer_page.keep(answer, folder)
    assert answer_page.read(folder) == answer
    for name in (folder.name, str(folder)):
        result = CliRunner().invoke(group, ["report", name])
        assert result.exit_code == 0, result.output
        assert f"{answer.command} {folder.name}" in result.stdout
    page = (folder / answer_page.PAGE).read_text()
    assert EVIL not in page
    assert "&lt;img src=x" in page
    assert page.count("<table") == sum(bool(table.rows) for table in answer.tables)


def test_what_is_no_answer(tmp_path: Path) -> None:
    assert answer_page.find(tmp_path) is None
    assert answer_page.find("latest") is None
    (tmp_path / answer_page.NAME).write_text('{"format": 1, "answer": {"command": 3}}')
    with pytest.raises(RunDirError, match="is damaged"):
        answer_page.read(tmp_path)
    (tmp_path / answer_page.NAME).write_text('{"format": 2}')
    with pytest.raises(RunDirError, match="format 2"):
        answer_page.read(tmp_path)


@needs_chromium
@MAKERS
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_a_window(make: Callable[[Path], AnswerPage], width: int, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(answer_page.answer_page(make(tmp_path / "runs"), tmp_path))
    browser = Browser(tmp_path)
    assert browser.measure(page, width, BEYOND) == []
    assert browser.said == ""
