"""Builds a program once more with the setting that makes kernels round as eager does, and compares its outputs."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, TargetError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.comparison import Comparison, SettingTrial
from aoti_debug.compare.measure.output_errors import errors
from aoti_debug.instrument.builder.build import build_report
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.runs.run import runner, saved_outputs
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.supervise import Observer

SETTING = "emulate_precision_casts"  # torch/_inductor/config.py: rounds between fused operators
PRECISION = f"{SETTING}=True"
_FOLDER = "with_setting"


def with_setting(
    comparison: Comparison, building: BuildOptions, running: RunOptions, eager: Path, folder: Path, steps: Steps
) -> Comparison:
    """The comparison with the outputs that the setting gives, if eager's rounding may explain how outputs differ.

    Args:
        building: of the exported program, as it was built.
        running: of its package.
        eager: the folder with what the exported program returned in eager.
        folder: for the package and its run, which are deleted.
    """
    is_known = comparison.setting is not None or SETTING in building.inductor_configs
    if is_known or not comparison.suspects_of_rounding:
        return comparison
    place = folder / _FOLDER
    try:
        with steps.step(f"with {PRECISION}") as note:
            trial = _tried(building, running, eager, place)
            near = sum(relative == 0 for relative in trial.relative.values())
            note.text = f"{near} of {wording.pluralize(len(trial.relative), 'output')} as in eager"
    except AotiDebugError as error:
        trial = SettingTrial(PRECISION, str(_path(building)), wording.first_line(str(error)))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return replace(comparison, setting=trial)


def _tried(building: BuildOptions, running: RunOptions, eager: Path, place: Path) -> SettingTrial:
    """Builds and runs it.

    Raises:
        AotiDebugError: it cannot be built, or ends in a fault.
    """
    place.mkdir()
    package, outputs = place / "package.pt2", place / "outputs"
    build_report(
        replace(building, output=package, inductor_configs={**building.inductor_configs, SETTING: True}, exported=None)
    )
    result = runner.run(
        replace(running, package=package, out=place / "runs", level=3, flight=None, outputs=outputs), Observer()
    )
    if result.verdict is not None:
        raise TargetError(f"the model ends in {wording.first_line(result.verdict.what)}")
    found = errors(saved_outputs.saved(outputs), saved_outputs.saved(eager))
    return SettingTrial(
        PRECISION, str(_path(building)), relative={str(e.index): e.relative for e in found if math.isfinite(e.relative)}
    )


def _path(building: BuildOptions) -> Path:
    program = building.program
    return program.path if isinstance(program, Artifact) else Path(str(program))
