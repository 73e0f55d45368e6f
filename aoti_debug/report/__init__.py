"""A report: one HTML file that shows a run, or a triage, to people; it opens without network."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from aoti_debug.errors import UsageError
from aoti_debug.machine import files
from aoti_debug.report.document import document_of
from aoti_debug.report.page import page
from aoti_debug.report.redaction import RedactedPart, redaction_for
from aoti_debug.report.subject import REPORT, ReportSubject, find, of_comparison, of_run, of_triage
from aoti_debug.triage.triage_directory import TriageDir

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
    """Writes the page, whole or not at all, over an older one; returns its path.

    Args:
        output: the file; None for report/index.html in the directory of the run or triage.
        summaries: name of the page of summaries beside it; "" for none.

    Raises:
        RunDirError: a run is damaged.
        UsageError: the file cannot be written.
    """
    path = output or subject.report
    if output is None and path.parent.is_symlink():
        raise UsageError(f"{path.parent} is a link to another place", hint="name the file with -o")
    text = html(subject, summaries=summaries)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error
    return path


def write_triage(triage: TriageDir) -> Path:
    """Writes the report of a triage into its directory.

    Raises:
        RunDirError: its run is damaged.
        UsageError: the file cannot be written.
    """
    return write(of_triage(triage))
