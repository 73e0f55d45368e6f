"""Finds the launch that the user means, and checks that the user trusts what its repro would execute."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base.errors import UsageError
from aoti_debug.package.pt2 import trust
from aoti_debug.package.pt2.archive_safety import printable
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir.run_directory import RunDir, name_hint
from aoti_debug.runs.rundir.timeline import Launch, LaunchStatus


def find_launch(run: RunDir, kernel: str, launch: str | None, suspects: Sequence[Launch] = ()) -> Launch:
    """The launch of a kernel: the one that is named, else one that is suspected, else the kernel's first.

    Args:
        launch: "0.3", or None.
        suspects: the launches that the run's fault may be laid to.

    Raises:
        UsageError: the kernel was not launched in this run, or the named launch is of another kernel.
        RunDirError: the run has no such launch.
    """
    launches = [x for x in run.launches if x.kernel == kernel]
    if not launches:
        kernels = [s.kernel for s in run.manifest.sites]
        if kernel in kernels:
            raise UsageError(f"{kernel} was not launched in run {run.path.name}", hint=name_hint(kernel, run.kernels()))
        raise UsageError(f"no kernel {kernel} in run {run.path.name}", hint=name_hint(kernel, dict.fromkeys(kernels)))
    if launch is not None:
        chosen = run.launch(launch)
        if chosen.kernel != kernel:
            ids = ", ".join(x.id for x in launches[:8]) + (", …" if len(launches) > 8 else "")
            raise UsageError(f"launch {chosen.id} is of {chosen.kernel}", hint=f"{kernel} was launched as {ids}")
        return chosen
    return next((x for x in suspects if x.kernel == kernel), launches[0])


def fault_of(launch: Launch, verdict: Verdict | None) -> str:
    """Returns the fault that a launch ended in, one line; "" if it ended well."""
    if verdict is not None and launch in verdict.suspects:
        return verdict.what.partition("\n")[0]
    if launch.status is LaunchStatus.FAILED:
        text = launch.fault.text.partition("\n")[0] if launch.fault else ""
        return text or f"error code {launch.returned}"
    return "it never returned" if launch.status is LaunchStatus.OPEN else ""


def require_trust(run: RunDir, launch: Launch, *, trusted: bool) -> None:
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
