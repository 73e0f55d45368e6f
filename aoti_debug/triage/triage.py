"""Runs a triage in a directory of its own."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata

import aoti_debug
from aoti_debug.machine import stamped_directories
from aoti_debug.machine.steps import StepListener, Steps
from aoti_debug.triage import session, triage_directory
from aoti_debug.triage.options import TriageOptions
from aoti_debug.triage.triage_directory import Record, TriageDir


def triage(options: TriageOptions, listener: StepListener | None = None, *, command: Sequence[str] = ()) -> TriageDir:
    """Finds out why a model crashes, hangs or computes what is not finite.

    Args:
        listener: told of the begin and end of every step.
        command: the words of the command line, for the record.

    Returns:
        The triage's directory; its finding is of kind CLEAN if nothing is wrong.

    Raises:
        UsageError, ArtifactError, ToolchainError, TargetError: the model could not be built or started; no directory is
            left then.
    """
    base_is_new = not options.out.exists()
    folder = triage_directory.create(options.out)
    steps = Steps(listener)
    try:
        outcome = session.investigate(options, folder, steps)
    except BaseException:
        if not (folder / triage_directory.RUNS).exists():
            stamped_directories.remove(folder, options.out if base_is_new else None)
        raise
    record = Record(
        finding=outcome.finding,
        steps=tuple(steps.done),
        versions=_versions(),
        command=tuple(command),
        package=str(folder / session.PACKAGE),
        run="" if outcome.run is None else str(outcome.run.path),
        between=steps.between,
    )
    triage_directory.write(folder, record)
    return TriageDir(folder, record, outcome.opened)


def _versions() -> dict[str, str]:
    versions = {
        "aoti-debug": aoti_debug.__version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
    }
    for name in ("torch", "triton", "safetensors"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
