"""The proof of a wrong launch: a run in which its results are replaced by the program's, with right outputs."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.what_if.replay_session import ReplayOptions, ReplaySession, options_of
from aoti_debug.compare.what_if.substitution import ResultSource, Substitution
from aoti_debug.compare.what_if.what_if import Recovery, WhatIf, what_if
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation.investigation import Investigation

FOLDER = "proof"
_MAX_LAUNCHES = 4  # launches that are replaced: each takes a run of its own


def proof(investigation: Investigation, run: RunDir, launches: Sequence[str], right: str) -> tuple[str, ...]:
    """A sentence that says whether the outputs are right with the results of these launches replaced; none if unknown.

    Args:
        run: of the package; one that saved no tensors is repeated.
        right: the conclusion where the outputs are right without any replacement.
    """
    if not 0 < len(launches) <= _MAX_LAUNCHES or run.package is None:
        return ()
    folder = investigation.repro.parent / FOLDER
    options = ReplayOptions(
        user_code=investigation.options.user_code,
    )
    substitutions = [Substitution(launch, ResultSource.EAGER) for launch in launches]
    with investigation.steps.step("proof") as note:
        try:
            session = ReplaySession(options_of(run, folder, options), folder, investigation.steps)
            found = what_if(session, run, substitutions)
        except AotiDebugError as error:
            note.text = f"no proof: {wording.first_line(str(error))}"
            return ()
        sentence = _sentence(found, right)
        note.text = sentence or f"no proof: {wording.comma_separated(found.notes)}"
    return (sentence,) if sentence else ()


def _sentence(found: WhatIf, right: str) -> str:
    outputs = found.outputs
    if not outputs.before or not outputs.after or found.after.refused:
        return ""
    names = wording.comma_separated([launch.id for launch in found.launches])
    results = "result" if len(found.launches) == 1 else "results"
    what = f"with the {results} of {names} replaced by eager's, the outputs"
    before, after = _largest(outputs.before), _largest(outputs.after)
    match outputs.recovery:
        case Recovery.RECOVERED:
            return f"{what} are right: relative error {before} before, {after} after"
        case Recovery.RIGHT_BEFORE:
            return f"before that, the outputs are within rounding what the graph of the kernels gives in eager: {right}"
        case Recovery.BROKEN:
            return f"{what} become wrong: relative error {before} before, {after} after"
        case _:
            return f"{what} stay wrong: relative error {before} before, {after} after"


def _largest(errors: Sequence[OutputError]) -> str:
    return f"{max(error.relative for error in errors):.2g}"
