"""The page of a run of ranks, with links to a page for each rank."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from aoti_debug.base.machine.files import atomic_write
from aoti_debug.runs.ranks import text
from aoti_debug.runs.ranks.document import document
from aoti_debug.runs.ranks.ranks_analysis import RanksAnalysis
from aoti_debug.runs.ranks.ranks_run import RankRun
from aoti_debug.views.report.page import PageParts, render
from aoti_debug.views.report.subject import REPORT

_PARTS = PageParts("ranks.html", (), ("report.css",), ())


def ranks_page(analysis: RanksAnalysis, page: Path) -> str:
    """The text of the HTML page.

    Args:
        page: the file that it is for; links start in its folder.
    """
    values = {
        "name": analysis.run.path.name,
        "summary": text.title(analysis),
        "bad": analysis.has_finding,
        "paragraphs": text.paragraphs(analysis),
        "titles": text.titles(),
        "rows": [(_link(rank, page), text.row(rank, analysis)) for rank in analysis.run.ranks],
    }
    return render(_PARTS, document(analysis), values)


def _link(rank: RankRun, page: Path) -> str:
    if rank.diagnosed is None:
        return ""
    return quote(os.path.relpath((rank.path / REPORT).resolve(), page.parent.resolve()))


def write(analysis: RanksAnalysis, output: Path | None = None) -> Path:
    """Writes the page of a run of ranks over an older one; returns its path.

    Args:
        output: the file; None for report/index.html in the directory of the run.

    Raises:
        UsageError: the file cannot be written.
    """
    default = analysis.run.path / REPORT
    return atomic_write.write_page(ranks_page(analysis, output or default), output, default)
