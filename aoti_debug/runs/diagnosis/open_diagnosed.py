"""Opens a run with its diagnosis, and saves what its flight recorder holds if its process has died."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.formats import shared_files


def open_diagnosed(name: str | Path | None = None, base: Path | None = None) -> DiagnosedRun:
    """Opens a run (see `run_directory.find`) after rescuing the tensors that its flight recorder holds.

    Raises:
        RunDirError: there is none, or it is damaged or of another version.
    """
    diagnosed = DiagnosedRun(run_directory.open_run(name, base))
    if shared_files.linked(diagnosed.run.path, shared_files.FLIGHT_RECORDER) is None:
        return diagnosed
    from aoti_debug.runs.diagnosis.rescue import rescued  # writes tensors; few runs are opened while they hold any

    rescued_run, _ = rescued(diagnosed)
    return rescued_run
