"""The part of the program's graph that one launch of a run computes, with its recorded tensors."""

from __future__ import annotations

from collections.abc import Callable

from aoti_debug.base.errors import UsageError
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.fx_repro.module_text import HINT
from aoti_debug.compare.protocol.request import Region
from aoti_debug.compare.regions.fault_region import fault_region
from aoti_debug.compare.regions.regions import UNRETURNED, find_regions
from aoti_debug.package.recording import levels
from aoti_debug.package.reference.program import Reference
from aoti_debug.repro.run_again import run_all_again
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch, LaunchStatus


def recorded_region(
    run: RunDir, launch: Launch, trusted: bool, say: Callable[[str], None]
) -> tuple[RunDir, Reference, Region]:
    """A run with the tensors of a launch, the graphs of its package, and the part of them that the launch computes.

    Raises:
        UsageError: no part of the graphs is what it computes.
        ArtifactError: the package holds no graph.
        RunDirError: the run cannot be read, or saved too little and cannot be repeated.
    """
    reference, _ = reference_of(run)
    region, reason = _region(run, launch, reference)
    if region is None and not _is_whole(run):
        say(f"{run.path.name} (level {levels.written(run.level)}) has not all tensors of launch {launch.id}")
        say("running the package again at level 1")
        run = run_all_again(run, launch, trusted).run
        say(f"recorded in {run.path}")
        region, reason = _region(run, run.launch(launch.id), reference)
    if region is None:
        raise UsageError(f"launch {launch.id} of {launch.kernel} has no part of the graph: {reason}", hint=HINT)
    return run, reference, region


def _is_whole(run: RunDir) -> bool:
    """True if the run saved tensors of every launch: repeating it gives no more."""
    return all(
        any(saved.path for a in launch.args for saved in a.files.values())
        for launch in run.launches
        if any(a.layout is not None for a in launch.args)
    )


def _region(run: RunDir, launch: Launch, reference: Reference) -> tuple[Region | None, str]:
    """The region of a launch, or that which it is a part of; else the reason why there is none."""
    if not run.has_tensors:
        return None, "no tensors were saved"
    if launch.status is not LaunchStatus.RETURNED:
        region = fault_region(run, reference, launch)
        return (region, "") if region and region.nodes else (None, UNRETURNED[launch.status])
    found = find_regions(run, reference)
    around = [region for region in found.regions if region.launch == launch.id]
    around += [region for region in found.regions if launch.id in region.launches]
    if around:
        return around[0], ""
    return None, next((item.reason for item in found.uncovered if item.launch == launch.id), "it writes no tensor")
