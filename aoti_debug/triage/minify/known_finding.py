"""The finding of a program that is to be made smaller, from a triage or a comparison, and that of a part of it."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, TargetError
from aoti_debug.base.machine.processes import child_process, tied_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.fx_repro.module_text import CLASS
from aoti_debug.compare.outcome import WRONG_VALUE
from aoti_debug.compare.text import output_text
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.minify.script_results import Known, ScriptTrials, ScriptVerdict, TriageAnswer
from aoti_debug.triage.minify.start_parts import MinifyOptions
from aoti_debug.triage.results import finding_kinds, triage_directory
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.triage.session import triage

PROGRAM, FOLDER = "program.pt2", "confirmation"
_SECONDS = 600.0  # that the export may take
_EXPORT = f"""
import runpy, sys
import torch
script = runpy.run_path(sys.argv[1])
torch.export.save(torch.export.export(script["{CLASS}"]().eval(), script["make_inputs"]()), sys.argv[2])
"""


def known_finding(
    options: MinifyOptions, folder: Path, trials: ScriptTrials, steps: Steps, listener: StepListener | None
) -> tuple[Finding, TriageDir]:
    """The finding of a program and its triage; that of an interrupted minimisation is taken from there.

    Raises:
        The errors of a triage.
    """
    if trials.known is not None:
        kept = findings.from_json(trials.known.finding, finding_kinds.by_value())
        return kept, triage_directory.open_triage(Path(trials.known.triage))
    finding, done = finding_of(options, folder, steps, listener)
    trials.know(Known(str(done.path), findings.to_json(finding)))
    return finding, done


def finding_of(
    options: MinifyOptions, folder: Path, steps: Steps, listener: StepListener | None
) -> tuple[Finding, TriageDir]:
    """The finding of a program, and its triage.

    Raises:
        The errors of a triage.
    """
    done = triage(
        TriageOptions(
            model=options.program,
            inputs=options.inputs,
            out=folder / "triages",
            calls=options.calls,
            stall=options.stall,
            guards=options.guards,
            inductor_configs=options.inductor_configs,
            user_code=options.user_code,
            time_limit=math.inf,  # what is not looked for is not known to be right
        ),
        listener,
    )
    is_fault = done.finding.kind.is_fault
    return done.finding if is_fault else _of_outputs(options, folder, done.finding, steps), done


def _of_outputs(options: MinifyOptions, folder: Path, clean: Finding, steps: Steps) -> Finding:
    """The finding that the model returns something else than its program in eager; the clean one if it does not."""
    with steps.step("compare") as note:
        comparison = compare(
            CompareOptions(
                model=options.program,
                inputs=options.inputs,
                calls=options.calls,
                out=folder / "compares",
                inductor_configs=options.inductor_configs,
                user_code=options.user_code,
            )
        )
        wrong = comparison.wrong_outputs
        note.text = output_text(wrong[0]) if wrong else "the outputs are right"
    return Finding(WRONG_VALUE, wording.first_line(note.text)) if wrong else clean


def verdict_of(
    script: Path, finding: Finding, options: MinifyOptions, listener: StepListener | None = None
) -> ScriptVerdict:
    """The verdict of a triage of the program of a script, which is left beside the script.

    Args:
        finding: of the whole program; one of the same kind confirms the script.
    """
    program = script.with_name(PROGRAM)
    try:
        _export(script, program)
        small = replace(options, program=program, inputs=None)
        found, _ = finding_of(small, script.parent.parent.with_name(FOLDER), Steps(listener), listener)
    except AotiDebugError as error:
        return ScriptVerdict(TriageAnswer.UNKNOWN, wording.first_line(str(error)))
    answer = TriageAnswer.YES if found.kind == finding.kind else TriageAnswer.NO
    return ScriptVerdict(answer, f"{found.kind.heading} {wording.first_line(found.what)}")


def _export(script: Path, program: Path) -> None:
    """Exports the module of a script.

    Raises:
        TargetError: that fails.
    """
    try:
        done = tied_process.run([sys.executable, "-c", _EXPORT, str(script), str(program)], timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"the part cannot be exported: {error}") from error
    if done.code:
        said = wording.first_line(done.stderr.strip().rpartition("\n")[2])
        raise TargetError(f"the part cannot be exported: {said or child_process.describe_exit(done.code)}")
