"""Reports: HTML files that show a run, a triage or a run of ranks to people; they open without network."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from aoti_debug.base.machine.files import atomic_write
from aoti_debug.runs.ranks import text
from aoti_debug.runs.ranks.ranks_analysis import RanksAnalysis
from aoti_debug.runs.ranks.ranks_run import RankRun
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.views.redaction import RedactedPart, redaction_for
from aoti_debug.views.report.document import document_of
from aoti_debug.views.report.page import PageParts, page, render
from aoti_debug.views.report.subject import REPORT, ReportSubject, find, of_comparison, of_run, of_triage

_PARTS = PageParts("ranks.html", (), ("report.css",), ())
__all__ = [
    "REPORT",
    "RedactedPart",
    "ReportSubject",
    "find",
    "html",
    "of_comparison",
    "of_run",
    "of_triage",
    "write",
    "write_triage",
]


def ranks_page(analysis: RanksAnalysis, page: Path) -> str:
    """The text of the HTML page.

    Args:
        page: the file that it is for; links start in its folder.
    """
    values = {
        "name": analysis.run.path.name,
        "model": next((model for rank in analysis.run.recorded if (model := _model(rank))), ""),
        "summary": text.title(analysis),
        "bad": analysis.has_finding,
        "paragraphs": text.paragraphs(analysis),
        "titles": text.titles(),
        "rows": [(_link(rank, page), text.row(rank, analysis)) for rank in analysis.run.ranks],
    }
    return render(_PARTS, text.document(analysis), values)


def _model(rank: RankRun) -> str:
    return "" if rank.diagnosed is None else rank.diagnosed.run.info.model


def _link(rank: RankRun, page: Path) -> str:
    if rank.diagnosed is None:
        return ""
    return quote(os.path.relpath((rank.path / REPORT).resolve(), page.parent.resolve()))


def write_ranks_page(analysis: RanksAnalysis, output: Path | None = None) -> Path:
    """Writes the page of a run of ranks over an older one; returns its path.

    Args:
        output: the file; None for report/index.html in the directory of the run.

    Raises:
        UsageError: the file cannot be written.
    """
    default = analysis.run.path / REPORT
    return atomic_write.write_page(ranks_page(analysis, output or default), output, default)


def html(subject: ReportSubject, parts: Collection[RedactedPart] = (), summaries: str = "") -> str:
    """The HTML page of a report.

    Args:
        parts: what to leave out.
        summaries: name of the page of summaries beside this one; "" for none.

    Raises:
        RunDirError: a run is damaged.
    """
    manifests = [] if subject.run is None else [subject.run.manifest]
    return page(document_of(subject, redaction_for(parts, manifests, subject.finding), summaries))


def write(subject: ReportSubject, output: Path | None = None, summaries: str = "") -> Path:
    """Writes the report of a run or a triage, whole or not at all, over an older one; returns its path.

    Args:
        output: the file; None for report/index.html in the directory of the run or triage.
        summaries: name of the page of summaries beside it; "" for none.

    Raises:
        RunDirError: a run is damaged.
        UsageError: the file cannot be written.
    """
    return atomic_write.write_page(html(subject, summaries=summaries), output, subject.report)


def write_triage(triage: TriageDir) -> Path:
    """Writes the report of a triage into its directory.

    Raises:
        RunDirError: its run is damaged.
        UsageError: the file cannot be written.
    """
    return write(of_triage(triage))
