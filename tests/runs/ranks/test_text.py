"""The text, the page and the JSON of a run of ranks."""

from __future__ import annotations

import json
from pathlib import Path

from aoti_debug.runs.ranks.ranks_analysis import RanksAnalysis, analyse
from aoti_debug.runs.ranks.text import document, ranks_lines
from aoti_debug.views.report.report import ranks_page
from aoti_debug.views.report.subject import REPORT
from tests import schema
from tests.runs.ranks.ranked import Rank, killed, opened, terminated, threw

SCHEMA = json.loads((schema.DOCS / "ranks.schema.json").read_text())


def failed(base: Path) -> RanksAnalysis:
    return analyse(opened(base, threw(2), killed(0, hashes=(7, 2)), terminated(2), Rank(skipped=(3,), calls=1), None))


def test_lines(tmp_path: Path) -> None:
    text = "\n".join(ranks_lines(failed(tmp_path), 200))
    for expected in (
        "5 ranks, 1 failed, 1 killed, 1 ended by SIGTERM, 1 finished",
        "FIRST: killed",
        "waits, ended by SIGTERM",
        "it has not called the package",
        "FAULT rank 1 failed first, probably: it disappeared, as by SIGKILL, in 1.0 mm",
        "ranks 0 and 2 wait in 1.2 aoti_torch_cpu__c10d_functional_wait_tensor for ranks 1, 3 and 4",
        "rank 3 parts from ranks 0, 1 and 2 at 0.3: it has not softmax",
        "DIFFERS rank 1 from ranks 0, 2 and 3: weight layer.weight, 0.0 mm",
        f"next: aoti-debug show {tmp_path}/20261120-231501-1/rank1",
    ):
        assert expected in text


def test_the_document_is_as_the_schema_says(tmp_path: Path) -> None:
    for analysis in (failed(tmp_path / "a"), analyse(opened(tmp_path / "b", Rank(), Rank(machine="other")))):
        assert schema.problems(json.loads(json.dumps(document(analysis))), SCHEMA) == []


def test_the_page_links_to_the_ranks_that_left_a_run(tmp_path: Path) -> None:
    analysis = failed(tmp_path / "runs")
    page = ranks_page(analysis, analysis.run.path / REPORT)
    assert '<a href="../rank1/report/index.html">1</a>' in page
    assert "rank4/report" not in page
    assert "FAULT rank 1 failed first" in page
    elsewhere = ranks_page(analysis, tmp_path / "page.html")
    assert '<a href="runs/20261120-231501-1/rank1/report/index.html">1</a>' in elsewhere
