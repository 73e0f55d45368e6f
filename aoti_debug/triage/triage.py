"""Runs a triage in a directory of its own."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.progress.steps import StepListener, Steps
from aoti_debug.base.machine.versions import installed_versions
from aoti_debug.base.version import __version__
from aoti_debug.triage import session
from aoti_debug.triage.investigation.options import TriageOptions
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.triage_directory import Record, TriageDir


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
    package = folder / session.PACKAGE
    record = Record(
        finding=outcome.finding,
        steps=tuple(steps.done),
        versions={
            "aoti-debug": __version__,
            **installed_versions("torch", "triton", "safetensors"),
        },
        command=tuple(command),
        package=str(package) if package.exists() else "",
        run="" if outcome.run is None else str(outcome.run.path),
        between=steps.between,
    )
    triage_directory.write(folder, record)
    return TriageDir(folder, record, outcome.opened)
