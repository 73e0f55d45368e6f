"""A launch of a run directory, as a repro needs it."""

from __future__ import annotations

import aoti_debug
from aoti_debug.abi import Phase, SaveStatus
from aoti_debug.launches import Argument, Launch
from aoti_debug.manifest import Form
from aoti_debug.repro.recorded import RecordedLaunch, RecordedRun, RecordedSlot
from aoti_debug.rundir import RunDir


def recorded_launch(run: RunDir, launch: Launch, fault: str) -> RecordedLaunch:
    """
    Args:
        fault: what this launch ended in; "" if it ended well.
    """
    torch_version = run.info.torch_version or run.manifest.torch_version
    where = RecordedRun(run.path, run.info.started, torch_version, run.manifest.device, aoti_debug.__version__)
    slots = tuple(_slot(run, argument) for argument in launch.args)
    return RecordedLaunch(launch.id, launch.site, slots, where, fault)


def _slot(run: RunDir, argument: Argument) -> RecordedSlot:
    value = argument.after if argument.spec.form is Form.OUTPUT_SLOT else argument.before
    paths = {
        phase: run.tensor_path(saved)
        for phase, saved in argument.files.items()
        if saved.status is not SaveStatus.SKIPPED
    }
    reason = next((s.reason for s in argument.files.values() if s.status is SaveStatus.SKIPPED), "")
    return RecordedSlot(argument.spec, value, paths.get(Phase.BEFORE), paths.get(Phase.AFTER), reason)
