"""Runs a run's package once more, to save the tensors of one launch."""

from __future__ import annotations

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.repro.recorded_launch import again_hint
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind

HANG_SECONDS = 300.0  # for the package to run again where the first run was ended by its time-out


def run_again(run: RunDir, launch: Launch, *, trusted: bool, all_launches: bool = False) -> DiagnosedRun:
    """Repeats the run at level 1 with the same inputs, to save the tensors of one launch.

    Args:
        launch: that has to come again.
        trusted: run the package even if it was not made on this account.
        all_launches: save the tensors of the other launches too.

    Raises:
        RunDirError: the package is not known or gone, or the launch did not come again.
    """
    if run.package is None:
        raise RunDirError(
            f"{run.path.name} saved no tensors of launch {launch.id}, and does not say where its package is",
            hint=again_hint(run, launch),
        )
    result = runner.run(
        RunOptions(
            run.package,
            inputs=run.inputs,
            level=1,
            filters=(),
            phase="both",
            out=run.path.parent,
            calls=max(run.info.calls, launch.key.call + 1),
            timeout=HANG_SECONDS if run.state is ExitKind.TIMEOUT else None,
            user_code=UserCode(trusted=trusted).after(run.info.imports, run.info.libraries),
            environment=torch_settings.environment(run.info.torch_settings),
            launch=None if all_launches else launch.id,
        )
    )
    repeated = next((x for x in result.run.launches if x.key == launch.key), None)
    if repeated is None or repeated.site.id != launch.site.id:
        change = "did not come again" if repeated is None else f"was {repeated.kernel} this time"
        raise RunDirError(
            f"launch {launch.id} of {launch.kernel} {change} ({result.run.path})",
            hint="the model does not take the same path every time: run it at level 1",
        )
    return result.diagnosed
