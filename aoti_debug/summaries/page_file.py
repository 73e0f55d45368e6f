"""The page with the curves of a run, written to its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aoti_debug.errors import UsageError
from aoti_debug.machine import files
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.summaries import Series, Summaries

NAME = "summaries.html"
PAGE = Path("report") / NAME


def write(run: RunDir, found: Summaries, chosen: Sequence[Series], output: Path | None = None) -> Path:
    """Writes the page over an older one; returns its path.

    Args:
        chosen: the tensors that it shows.
        output: the file; None for PAGE in the run directory.

    Raises:
        UsageError: the file cannot be written.
    """
    from aoti_debug.summaries.curves import page  # the table alone starts without the templates

    path = output or run.path / PAGE
    if output is None and path.parent.is_symlink():
        raise UsageError(f"{path.parent} is a link to another place", hint="name the file with -o")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, page(run, found, chosen))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error
    return path
