"""Runs a model with results of launches replaced, and says whether its outputs match eager's again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.compare.compare_run import Scope
from aoti_debug.compare.diff.diff_runs import pair_runs
from aoti_debug.compare.measure.output_errors import OutputError, errors
from aoti_debug.compare.protocol.request import ValueArithmetic
from aoti_debug.compare.what_if.replacements import (
    ProgramValues,
    ResultSource,
    Substitution,
    program_values,
    recorded_results,
    results_of,
)
from aoti_debug.compare.what_if.substituted_run import (
    Instruction,
    Replace,
    ReplaySession,
    Skip,
    SubstitutedRun,
    recorded,
)
from aoti_debug.package.manifest import Form, Role
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_FACTOR = 8.0  # an error that is smaller by this factor is clearly smaller
_ARITHMETICS = {ResultSource.EAGER: ValueArithmetic.EAGER, ResultSource.DOUBLE: ValueArithmetic.DOUBLE}
_MAX_OUTPUTS = 12  # outputs that are listed


class Recovery(str, Enum):
    """The change of the outputs when results are replaced."""

    RECOVERED = "match again"  # they were wrong, and are right
    NEARER = "come nearer"  # by a clear factor, but not all of them are right
    UNCHANGED = "still do not match"
    RIGHT_BEFORE = "were right before"
    BROKEN = "become wrong"


@dataclass(frozen=True)
class Outputs:
    """The errors of the outputs, of the baseline and with results replaced; the same outputs in both."""

    before: tuple[OutputError, ...]
    after: tuple[OutputError, ...]

    @property
    def recovery(self) -> Recovery:
        """The change of the outputs."""
        was_right = all(error.is_right for error in self.before)
        if all(error.is_right for error in self.after):
            return Recovery.RIGHT_BEFORE if was_right else Recovery.RECOVERED
        if was_right:
            return Recovery.BROKEN
        is_nearer = _largest(self.after) * _FACTOR <= _largest(self.before)
        return Recovery.NEARER if is_nearer else Recovery.UNCHANGED


def _largest(errors: tuple[OutputError, ...]) -> float:
    return max((error.relative for error in errors), default=0.0)


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A model with results of launches replaced.

    Attributes:
        begin: what is before this launch was not launched, and got the recorded results; "" if all were launched.
        launches: those whose results were replaced.
        before, after: the baseline run, and the one with the replacements.
        outputs: their errors against the program in eager.
        notes: what limits this.
    """

    substitutions: tuple[Substitution, ...]
    begin: str
    launches: tuple[Launch, ...]
    before: SubstitutedRun
    after: SubstitutedRun
    outputs: Outputs
    notes: tuple[str, ...]


def what_if(session: ReplaySession, run: RunDir, substitutions: Sequence[Substitution], begin: str = "") -> WhatIf:
    """Runs the model without and with the substitutions, and compares both with the program in eager.

    Args:
        run: a run of the same package and inputs; one that saved no tensors is repeated.
        begin: what is before this launch is not launched, and gets the recorded results; "" to launch everything.

    Raises:
        UsageError: a result cannot be replaced, or what should replace it is not known.
        ArtifactError, RunDirError, TargetError: a model cannot be run, or its program not be evaluated.
    """
    planned = plan(session, run, substitutions, begin)
    before = session.again("baseline", ())
    after = session.again("substituted", planned.instructions)
    outputs = Outputs(errors(before.outputs, planned.program.outputs), errors(after.outputs, planned.program.outputs))
    notes = [*planned.program.notes, *after.refused]
    if planned.program.failure or not outputs.before:
        notes.append(f"what the program returns is not known: {planned.program.failure or 'it returns no tensor'}")
    return WhatIf(
        substitutions=tuple(substitutions),
        begin=begin,
        launches=planned.launches,
        before=before,
        after=after,
        outputs=outputs,
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class Plan:
    """The instructions for a run, and what the program gives.

    Attributes:
        launches: those of the substitutions.
    """

    instructions: tuple[Instruction, ...]
    launches: tuple[Launch, ...]
    program: ProgramValues


def plan(session: ReplaySession, run: RunDir, substitutions: Sequence[Substitution], begin: str) -> Plan:
    """Computes what substitutions replace results with, and makes the instructions for the run; see `what_if`.

    Raises:
        UsageError, ArtifactError, RunDirError, TargetError: as of `what_if`.
    """
    run = recorded(session, run)
    earlier = list(recorded_results(run, run.launch(begin))) if begin else []
    launches = tuple(run.launch(substitution.launch) for substitution in substitutions)
    for substitution, launch in zip(substitutions, launches, strict=True):
        if substitution.source is ResultSource.SKIP:
            _require_skippable(launch)
    instructions: list[Instruction] = [
        *earlier,
        *(Skip(s.launch) for s in substitutions if s.source is ResultSource.SKIP),
    ]
    instructions += _of_packages(session, run, substitutions)
    program, computed = _of_program(session, run, substitutions, instructions)
    return Plan((*instructions, *computed), launches, program)


def _of_program(
    session: ReplaySession, run: RunDir, substitutions: Sequence[Substitution], others: Sequence[Instruction]
) -> tuple[ProgramValues, list[Replace]]:
    """What the program returns, and the results of its launches.

    Each is computed from what the launch reads when the earlier ones are replaced already.
    """
    scope = Scope(user_code=session.options.user_code)
    asked = sorted((s for s in substitutions if s.source in _ARITHMETICS), key=lambda s: run.launch(s.launch).sequence)
    replacements: list[Replace] = []
    notes: list[str] = []
    original: ProgramValues | None = None  # what it returns is computed from what was recorded before any replacement

    def evaluated(of: RunDir, launches: Sequence[Substitution]) -> ProgramValues:
        wanted = {substitution.launch: _ARITHMETICS[substitution.source] for substitution in launches}
        with session.steps.step("evaluate the program") as note:
            found = program_values(of, wanted, scope, session.folder / f"program_{session.runs}")
            note.text = f"{wording.pluralize(len(found.outputs), 'output')}, {wording.pluralize(len(wanted), 'result')}"
        return found

    if others or not asked:
        original = evaluated(run, ())
    for substitution in asked:
        if others or replacements:
            run = session.again(f"recorded before {substitution.launch}", (*others, *replacements), level=1).run
        found = evaluated(run, (substitution,))
        replacements += found.replacements
        notes += found.notes
        original = original or found
    assert original is not None
    return replace(original, notes=tuple(notes)), replacements


def _require_skippable(launch: Launch) -> None:
    """Raises UsageError if a launch makes the tensors that it returns: without it, there are none."""
    made = [argument.name for argument in launch.args if _makes(argument)]
    if made:
        raise UsageError(
            f"{launch.id} {launch.kernel} cannot be skipped: it makes {wording.comma_separated(made)} itself",
            hint=f"{launch.id}=eager replaces what it has written",
        )


def _makes(argument: Argument) -> bool:
    """True if the callee makes what the argument shows, instead of writing into what it is given."""
    form, role = argument.spec.form, argument.role
    is_number = form is Form.SCALAR_REF and role in (Role.OUT, Role.INOUT, Role.UNKNOWN)
    return form is Form.OUTPUT_SLOT or is_number or (form is Form.LIST and role is Role.OUT)


def _of_packages(session: ReplaySession, run: RunDir, substitutions: Sequence[Substitution]) -> Iterator[Replace]:
    """What paired launches of other packages write."""
    others: dict[Path, RunDir] = {}
    for substitution in substitutions:
        if substitution.package is None:
            continue
        if substitution.package not in others:
            session_of_other = session.of_model(substitution.package, f"b{len(others) or ''}")
            others[substitution.package] = session_of_other.again(substitution.package.name, (), level=1).run
        other, launch = others[substitution.package], run.launch(substitution.launch)
        pair = next((pair for pair in pair_runs(other, run)[0].pairs if pair.launch.key == launch.key), None)
        found = [] if pair is None else list(results_of(pair, other))
        if not found:
            raise UsageError(
                f"no launch of {substitution.package} writes what {substitution.launch} does",
                hint="aoti-debug diff shows which launches pair",
            )
        yield from found


_CONCLUSIONS = {
    Recovery.RECOVERED: "RECOVERED",
    Recovery.NEARER: "NEARER",
    Recovery.UNCHANGED: "NOT RECOVERED",
    Recovery.RIGHT_BEFORE: "RIGHT BEFORE",
    Recovery.BROKEN: "BROKEN",
}


def what_if_lines(found: WhatIf) -> list[str]:
    """The errors of the outputs before and after, and whether they match again."""
    named = zip(found.substitutions, found.launches, strict=True)
    replaced = [f"{substitution} ({launch.kernel})" for substitution, launch in named]
    subject = wording.comma_separated(replaced) if replaced else ""
    if found.begin:
        subject = f"{subject}, from {found.begin} on" if subject else f"everything from {found.begin} on"
    lines = [*outputs_lines(found.outputs), ""] if found.outputs.before else []
    lines += [f"note: {note}" for note in found.notes]
    if not found.outputs.before or not found.outputs.after:
        return [*lines, f"UNKNOWN with {subject}: there is nothing to compare the outputs with"]
    recovery = found.outputs.recovery
    return [*lines, f"{_CONCLUSIONS[recovery]} with {subject}: the outputs {recovery.value}"]


def what_if_document(found: WhatIf) -> dict[str, Any]:
    """The object that `aoti-debug replay --json` prints, of a replay to its end."""
    is_known = bool(found.outputs.before and found.outputs.after)
    return {
        "run": str(found.after.run.path),
        "baseline": str(found.before.run.path),
        "substitutions": [
            {"launch": launch.id, "kernel": launch.kernel, "by": str(substitution.package or substitution.source.value)}
            for substitution, launch in zip(found.substitutions, found.launches, strict=True)
        ],
        "from": found.begin or None,
        "conclusion": found.outputs.recovery.name.lower() if is_known else "unknown",
        "outputs": outputs_document(found.outputs),
        "notes": list(found.notes),
    }


def outputs_document(outputs: Outputs) -> list[dict[str, Any]]:
    """The errors of the outputs as JSON data; "after" is null for one that was not returned again."""
    after = {error.index: error for error in outputs.after}
    return [
        {
            "index": error.index,
            "dtype": error.dtype,
            "elements": error.elements,
            "before": _error(error),
            "after": _error(after[error.index]) if error.index in after else None,
        }
        for error in outputs.before
    ]


def _error(error: OutputError) -> dict[str, Any]:
    return {
        "different": error.different,
        "relative": json_data.number(error.relative),
        "is_right": error.is_right,
        "fault": error.fault or None,
    }


def outputs_lines(outputs: Outputs, expected: str = "eager") -> list[str]:
    """A table of the outputs."""
    rows = [(f"error against {expected}", "before", "after")]
    after = {error.index: error for error in outputs.after}
    for error in outputs.before[:_MAX_OUTPUTS]:
        rows.append((_name(error), _size(error), _size(after[error.index]) if error.index in after else "-"))
    width = max(len(row[0]) for row in rows)
    lines = [f"{name:<{width}}  {before:>12}  {later:>12}" for name, before, later in rows]
    more = len(outputs.before) - _MAX_OUTPUTS
    return [*lines, f"and {more} more"] if more > 0 else lines


def _name(error: OutputError) -> str:
    return f"output {error.index}, {error.dtype}, {wording.pluralize(error.elements, 'element')}"


def _size(error: OutputError) -> str:
    return "same bytes" if not error.different else f"{error.relative:.3g}"
