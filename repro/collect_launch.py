"""A launch of a run directory, as a repro needs it."""

from __future__ import annotations

import aoti_debug
from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.instrument.wrapper.launches.launch_traits import traits_of
from aoti_debug.package.manifest import Form
from aoti_debug.package.recording.values import Absent, Tensor
from aoti_debug.repro.kernel_binary import kernel_binary
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedRun, RecordedSlot
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument, Launch, LaunchStatus


def recorded_launch(run: RunDir, launch: Launch, fault: str) -> RecordedLaunch:
    """Returns a launch with what the run directory holds of it.

    Args:
        fault: what this launch ended in; "" if it ended well.
    """
    torch_version = run.info.torch_version or run.manifest.torch_version
    where = RecordedRun(run.path, run.info.started, torch_version, run.manifest.device, aoti_debug.__version__)
    started = launch.status is not LaunchStatus.NOT_STARTED
    slots = tuple(_slot(run, argument, started) for argument in launch.args)
    binary, no_binary = _binary(run, launch)
    return RecordedLaunch(launch.id, launch.site, slots, where, fault, launch.grid, started, binary, no_binary)


def _binary(run: RunDir, launch: Launch) -> tuple[bytes | None, str]:
    """The machine code of a launch's Triton kernel from the package that was run, or the reason why it is missing."""
    if traits_of(launch.site.kind).replay != "triton":
        return None, ""
    names = [grid.kernel for grid in launch.grids] or list(launch.site.launches)
    return kernel_binary(run, run.manifest.kernel(names[0]) if names else None)


def _slot(run: RunDir, argument: Argument, started: bool) -> RecordedSlot:
    made = argument.before is Absent.UNDEFINED and isinstance(argument.after, Tensor)
    value = argument.after if made or argument.spec.form is Form.OUTPUT_SLOT else argument.before
    paths = {
        phase: run.tensor_path(saved)
        for phase, saved in argument.files.items()
        if saved.status is not SaveStatus.SKIPPED
    }
    reason = next((s.reason for s in argument.files.values() if s.status is SaveStatus.SKIPPED), "")
    before = paths.get(Phase.BEFORE)
    after = paths.get(Phase.AFTER, None if started else before)  # what did not start wrote nothing
    return RecordedSlot(argument.spec, value, before, after, reason, made)
