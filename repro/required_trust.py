"""Checks that a repro executes nothing from an untrusted source without the user's consent."""

from __future__ import annotations

from aoti_debug.base.errors import UsageError
from aoti_debug.package.pt2 import trust
from aoti_debug.package.pt2.archive_safety import printable
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch


def require_trust(run: RunDir, launch: Launch, trusted: bool) -> None:
    """Checks that what the repro executes was made on this account, or is trusted.

    Raises:
        UsageError: it was not.
    """
    if trusted or run.is_made_here:
        return
    what = (
        f"the operator {printable(launch.site.op)}" if launch.site.op else f"the source of {printable(launch.kernel)}"
    )
    loaded = trust.would_load(run.manifest, run.info.imports, run.info.libraries)
    raise UsageError(
        f"{run.path} was not made on this account; its repro would run {what} as the run describes it{loaded}",
        hint=trust.TRUST_HINT,
    )
