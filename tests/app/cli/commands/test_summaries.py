"""`aoti-debug run --summaries` and `aoti-debug summaries` on a real model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.runs.rundir import summaries
from aoti_debug.runs.rundir.run_directory import open_run
from tests.built_model import Built
from tests.schema import DOCS, problems
from tests.views.report.chromium import Browser, needs_chromium

SCHEMA = json.loads((DOCS / "summaries.schema.json").read_text())


@pytest.fixture(scope="module")
def run(built: Callable[[str], Built], tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("summarised")
    command = ["run", str(built("blocks").package), "--calls", "9", "--summaries", "--freq", "2", "--out", str(base)]
    assert main.run(command) == 0
    return (base / "latest").resolve()


def test_a_run_keeps_one_small_file(run: Path) -> None:
    assert not (run / summaries.NAME).exists()
    (kept,) = [path for path in run.iterdir() if path.name.startswith("summaries.")]
    assert kept.stat().st_size < 20_000
    assert (run / "stderr.log").read_text() == ""
    found = summaries.read(open_run(run))
    assert found is not None
    assert {tuple(s.call for s in series.samples) for series in found.series} == {(0, 2, 4, 6, 8)}
    linear = next(series for series in found.series if series.modules == ("linear.0",))
    assert linear.kernel == "aoti_torch_cpu_addmm_out"
    assert 0 < linear.samples[0].std < 2
    assert len({sample.mean for sample in linear.samples}) == 1


def test_the_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["summaries", str(run), "--module", "linear.?"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d+ tensors in 5 calls, of one call in 2", lines[0])
    assert all("linear." in line for line in lines[4:])


def test_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["summaries", str(run), "--module", "linear.0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert problems(document, SCHEMA) == []
    assert (document["calls"], document["asked"], document["every"]) == (5, 2, 2)
    tensor = document["tensors"][0]
    assert tensor["modules"] == ["linear.0"]
    assert [sample["call"] for sample in tensor["samples"]] == [0, 2, 4, 6, 8]
    assert tensor["headroom"]["bfloat16"]["overflow"] > tensor["headroom"]["float16"]["overflow"] > 0


def test_the_report_links_to_the_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["report", str(run)]) == 0
    assert '<a href="summaries.html">summaries</a>' in (run / "report" / "index.html").read_text()
    assert (run / "report" / "summaries.html").is_file()
    assert main.run(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0
    assert "summaries.html" not in (tmp_path / "page.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@needs_chromium
def test_the_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main.run(["summaries", str(run), "--plot", "-o", str(page)]) == 0
    assert f"curves: {page}, " in capsys.readouterr().out
    text = page.read_text()
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", text)
    browser = Browser(tmp_path)
    dom = browser.dom(page)
    assert browser.said == ""
    assert "No tensor changed over the calls" in dom
    assert dom.count('class="card"') == len(summaries.read(open_run(run)).series)  # type: ignore[union-attr]
    assert "<canvas" in dom


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--module", "linear.9"], "passes --module linear.9"),
        (["-o", "page.html"], "-o needs --plot"),
        (["--line", "model.py"], "--line 'model.py' is not FILE:LINE"),
    ],
)
def test_mistakes(run: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str) -> None:
    assert main.run(["summaries", str(run), *arguments]) == 2
    err = capsys.readouterr().err.splitlines()
    assert error in err[0]
    assert err[1].startswith("hint: ")
    assert "--plot" not in error or err[1] == f"hint: aoti-debug summaries {run} -o page.html --plot"


def test_a_run_without_summaries(saved: Callable[[str], object], capsys: pytest.CaptureFixture[str]) -> None:
    run = saved("blocks").path  # type: ignore[attr-defined]
    assert main.run(["summaries", str(run)]) == 6
    package = str((run / "package.pt2").readlink()).removeprefix(f"{Path.cwd()}/")
    assert f"holds no summaries\nhint: aoti-debug run {package} --calls 100 --summaries" in capsys.readouterr().err


def test_freq_needs_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", "none.pt2", "--freq", "2"]) == 2
    assert capsys.readouterr().err.startswith("error: --freq needs --summaries\n")
