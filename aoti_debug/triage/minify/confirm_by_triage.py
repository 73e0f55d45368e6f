"""Triages the program of a script, which says if it has the same kind of finding."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, TargetError
from aoti_debug.base.machine.processes import child_process, tied_process
from aoti_debug.base.machine.progress.steps import StepListener, Steps
from aoti_debug.compare.fx_repro.module_text import CLASS
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.minify.known_finding import finding_of
from aoti_debug.triage.minify.options import MinifyOptions
from aoti_debug.triage.minify.scripts.triage_verdict import ScriptVerdict, TriageAnswer

PROGRAM, FOLDER = "program.pt2", "confirmation"
_SECONDS = 600.0  # that the export may take
_EXPORT = f"""
import runpy, sys
import torch
script = runpy.run_path(sys.argv[1])
torch.export.save(torch.export.export(script["{CLASS}"]().eval(), script["make_inputs"]()), sys.argv[2])
"""


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
