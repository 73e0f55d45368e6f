"""Triages the program of a smallest script, which says if it is the same kind of finding."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from aoti_debug import wording
from aoti_debug.errors import AotiDebugError, TargetError
from aoti_debug.fx_repro.module_text import CLASS
from aoti_debug.machine import process
from aoti_debug.machine.steps import StepListener, Steps
from aoti_debug.minify.finding import finding_of
from aoti_debug.minify.found import Minified
from aoti_debug.minify.options import MinifyOptions

PROGRAM, FOLDER = "program.pt2", "confirmation"
_SECONDS = 600.0  # that the export may take
_EXPORT = f"""
import runpy, sys
import torch
script = runpy.run_path(sys.argv[1])
torch.export.save(torch.export.export(script["{CLASS}"]().eval(), script["make_inputs"]()), sys.argv[2])
"""


def confirmed(found: Minified, options: MinifyOptions, listener: StepListener | None = None) -> Minified:
    """The result with the verdict of a triage of its smallest program, which is left beside the script."""
    smallest = found.smallest
    if smallest is None:
        return found
    program = smallest.script.with_name(PROGRAM)
    try:
        _export(smallest.script, program)
        small = replace(options, program=program, inputs=None)
        finding, _ = finding_of(small, smallest.script.parent.with_name(FOLDER), Steps(listener), listener)
    except AotiDebugError as error:
        return replace(found, smallest=replace(smallest, verdict=f"not known: {wording.first_line(str(error))}"))
    verdict = f"{finding.kind.heading} {wording.first_line(finding.what)}"
    if finding.kind != found.finding.kind:
        verdict = f"NOT CONFIRMED: {verdict}"
    return replace(found, smallest=replace(smallest, verdict=verdict, program=program))


def _export(script: Path, program: Path) -> None:
    """Exports the module of a script.

    Raises:
        TargetError: that fails.
    """
    try:
        done = process.run([sys.executable, "-c", _EXPORT, str(script), str(program)], timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"{script} cannot be exported: {error}") from error
    if done.code:
        said = wording.first_line(done.stderr.strip().rpartition("\n")[2])
        raise TargetError(f"{script} cannot be exported: {said or process.describe_exit(done.code)}")
