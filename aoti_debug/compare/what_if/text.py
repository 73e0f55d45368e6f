"""A replay as lines of text."""

from __future__ import annotations

from aoti_debug.base import wording
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.what_if.what_if import Outputs, Recovery, WhatIf

_MAX_OUTPUTS = 12  # outputs that are listed
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
