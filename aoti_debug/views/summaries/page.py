"""The page with the curves of a run, written to its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base.machine.files import page_file
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.summaries import Series, Summaries

NAME = "summaries.html"
PAGE = Path("report") / NAME


def write(run: RunDir, found: Summaries, chosen: Sequence[Series], output: Path | None = None) -> Path:
    """Writes the page with the curves of a run over an older one; returns its path.

    Args:
        chosen: the tensors that it shows.
        output: the file; None for PAGE in the run directory.

    Raises:
        UsageError: the file cannot be written.
    """
    from aoti_debug.views.summaries.curves import page  # the table alone starts without the templates

    return page_file.write(page(run, found, chosen), output, run.path / PAGE)
