"""The verdict on a run as a finding."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, NO_FAULT, Finding, place_of
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind

_LISTED = 6  # suspects


def finding_of(run: RunDir, verdict: Verdict | None, arguments: Iterable[str] = ()) -> Finding:
    """The finding of a verdict; of kind NO_FAULT without one: what a run computes is not judged here.

    Args:
        verdict: of this run.
        arguments: lines on the arguments of the guilty launch; evidence where it hangs.
    """
    if verdict is None:
        launched = "1 launch" if len(run.launches) == 1 else f"{len(run.launches)} launches"
        values = "" if any(launch.is_measured for launch in run.launches) else "; values not recorded"
        what = f"still running: {launched} so far" if run.state is ExitKind.RUNNING else f"{launched}{values}"
        return Finding(NO_FAULT, what, next=(suggested_commands.show(run),))
    hang = run.state is ExitKind.TIMEOUT
    launch = verdict.launch
    return Finding(
        kind=HANG if hang else FAULT,
        what=verdict.what.partition("\n")[0],
        where=place_of(launch) if launch is not None else None,
        evidence=(*_evidence(verdict), *(arguments if hang else ())),
        stack=verdict.frames,
        next=verdict.next_commands,
    )


def _evidence(verdict: Verdict) -> Iterable[str]:
    yield verdict.why
    launch = verdict.launch
    if verdict.surfaced is not None:
        yield f"it was noticed in {verdict.surfaced.id} {verdict.surfaced.kernel}, which is a victim"
    if launch is None and verdict.suspects:
        names = ", ".join(f"{x.id} {x.kernel}" for x in verdict.suspects[:_LISTED])
        yield f"one of {len(verdict.suspects)} launches: {names}"
    if launch is not None and launch.loops:
        yield f"in iteration {', '.join(map(str, launch.loops))} of the loop, counted from 0"
