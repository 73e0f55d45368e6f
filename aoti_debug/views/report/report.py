"""A report: one HTML file that shows a run, or a triage, to people; it opens without network."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from aoti_debug.base.machine.files import atomic_write
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.views.report.document import document_of
from aoti_debug.views.report.page import page
from aoti_debug.views.report.redaction import RedactedPart, redaction_for
from aoti_debug.views.report.subject import REPORT, ReportSubject, find, of_comparison, of_run, of_triage

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
