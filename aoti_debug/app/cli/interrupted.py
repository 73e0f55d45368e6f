"""The lines that an interrupted command prints: that it was interrupted, and which of its directories are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.show.calls_and_replays import calls_text


def interrupted_lines(made: Sequence[Path]) -> list[str]:
    """The lines after Ctrl-C.

    Args:
        made: the directories that the command has made; some may be gone.
    """
    kept = [path for path in made if path.is_dir()]
    outermost = [path for path in kept if kept and not any(other in path.parents for other in kept)]
    if not outermost:
        return ["interrupted: nothing is kept"]
    return ["interrupted", *(line for path in outermost for line in _lines(path))]


def _lines(path: Path) -> list[str]:
    shown = wording.short_path(path)
    try:
        run = run_directory.open_run(path)
    except AotiDebugError:  # it is no run
        return [f"kept: {shown}"]
    recorded = f"{wording.pluralize(len(run.launches), 'launch')} in {calls_text(run)}"
    return [f"kept: {shown}, {recorded}", f"next: {suggested_commands.show(run)}"]
