"""The finding that is to be made smaller: that of a triage, or of a comparison where only outputs are wrong."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.machine.progress.steps import StepListener, Steps
from aoti_debug.compare.compare import compare
from aoti_debug.compare.options import CompareOptions
from aoti_debug.compare.outcome import WRONG_VALUE
from aoti_debug.compare.text import output_text
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.investigation.options import TriageOptions
from aoti_debug.triage.minify.options import MinifyOptions
from aoti_debug.triage.minify.scripts.script_results import Known, ScriptTrials
from aoti_debug.triage.results import finding_kinds, triage_directory
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.triage.triage import triage


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
            imports=options.imports,
            libraries=options.libraries,
            trusted=options.trusted,
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
                imports=options.imports,
                libraries=options.libraries,
                trusted=options.trusted,
            )
        )
        wrong = comparison.wrong_outputs
        note.text = output_text(wrong[0]) if wrong else "the outputs are right"
    return Finding(WRONG_VALUE, wording.first_line(note.text)) if wrong else clean
