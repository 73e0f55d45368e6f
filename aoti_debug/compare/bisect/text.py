"""Bisections of packages and of settings as lines of text, and as JSON data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from aoti_debug.base import wording
from aoti_debug.compare.bisect.bisect import Bisection, SettingsBisection, SuspectLaunch
from aoti_debug.compare.bisect.build_trials import result_text
from aoti_debug.compare.diff.pairs import PairedBy
from aoti_debug.compare.diff.text import element_text
from aoti_debug.compare.what_if.what_if import Recovery, outputs_document, outputs_lines

FORMAT = 1
_MAX_NOT_COMPARED = 4
_MAX_CULPRITS = 8  # culprits that are listed
_PAIRED = {
    PairedBy.LAUNCH: "launch by launch",
    PairedBy.VALUE: "by the values of the program that they write",
}


def bisection_lines(found: Bisection) -> list[str]:
    """The culprits, the errors of the outputs with and without them, and how many runs it took."""
    culprits = found.culprits
    lines = [
        f"{wording.pluralize(found.paired, 'launch')} paired {_PAIRED[found.by]}, "
        f"{found.same} with the same results from the same inputs"
    ]
    if by_rounding := [suspect for suspect in found.suspects if not suspect.is_culprit]:
        names = wording.join_truncated([suspect.launch.id for suspect in by_rounding], 6)
        lines.append(
            f"{wording.pluralize(len(by_rounding), 'launch')} with others, which rounding suffices to explain: {names}"
        )
    lines.append("")
    for suspect in culprits[:_MAX_CULPRITS]:
        lines += _culprit(suspect)
    if len(culprits) > _MAX_CULPRITS:
        lines.append(f"and {len(culprits) - _MAX_CULPRITS} more")
    lines += _outputs(found)
    lines += [f"note: {note}" for note in found.notes]
    return [*lines, f"{_conclusion(found)}; {wording.pluralize(found.runs, 'run')}"]


def _culprit(suspect: SuspectLaunch) -> Iterator[str]:
    launch = suspect.launch
    verdict = "" if suspect.verdict is None else f": {suspect.verdict.value}, compared with the program"
    yield f"CULPRIT {launch.id} {launch.kernel}{verdict}"
    for line in launch.site.provenance.source[:1]:
        yield f"  model    {line.place}  {line.text.strip()}"
    for tensor in suspect.tensors:
        layout = tensor.pair.b.argument.layout
        if tensor.elements is not None and layout is not None:
            yield f"  {tensor.name:<8} {element_text(tensor.elements, layout.shape)}"


def bisection_document(found: Bisection) -> dict[str, Any]:
    """The object that `aoti-debug bisect --json` prints, of two packages."""
    return {
        "format": FORMAT,
        "is_clean": found.is_clean,
        "conclusion": _conclusion(found),
        "good": str(found.good.path),
        "bad": str(found.bad.path),
        "paired_by": found.by.value,
        "paired": found.paired,
        "same": found.same,
        "suspects": [_suspect_document(suspect) for suspect in found.suspects],
        "between": [launch.id for launch in found.between],
        "outputs": outputs_document(found.outputs),
        "recovery": found.outputs.recovery.name.lower() if found.outputs.before and found.outputs.after else None,
        "runs": found.runs,
        "notes": list(found.notes),
    }


def _suspect_document(suspect: SuspectLaunch) -> dict[str, Any]:
    frames = suspect.launch.site.provenance.source[:1]
    return {
        "launch": suspect.launch.id,
        "kernel": suspect.launch.kernel,
        "is_culprit": suspect.is_culprit,
        "verdict": None if suspect.verdict is None else suspect.verdict.value,
        "line": frames[0].place if frames else None,
        "tensors": [tensor.name for tensor in suspect.tensors],
    }


def settings_document(found: SettingsBisection) -> dict[str, Any]:
    """The object that `aoti-debug bisect --settings --json` prints."""
    return {
        "format": FORMAT,
        "is_clean": found.trials[0].is_right,
        "not_compared": list(found.trials[0].not_compared),
        "fixed_by": list(found.lines),
        "cause": found.cause or None,
        "trials": [
            {
                "name": trial.name,
                "changes": list(trial.changes),
                "is_right": trial.is_right,
                "wrong": trial.wrong or None,
                "failure": trial.failure or None,
                "seconds": trial.seconds,
            }
            for trial in found.trials
        ],
        "known": found.known,
        "is_finished": found.ended_after is None,
    }


def _outputs(found: Bisection) -> list[str]:
    if not found.outputs.before:
        return []
    replaced = found.outputs if found.culprits else replace(found.outputs, after=())  # no result was replaced
    lines = outputs_lines(replaced, "the good package")
    return ["", *lines, ""] if found.culprits else [*lines, ""]


def _conclusion(found: Bisection) -> str:
    culprits = wording.comma_separated([suspect.launch.id for suspect in found.culprits[:_MAX_CULPRITS]])
    if found.between:
        first, last = found.between[0].id, found.between[-1].id
        where = first if first == last else f"one of {first} to {last}"
        if not found.culprits:
            return f"FOUND {where}, by halves: with all results up to it replaced, the outputs are right"
        right = f"with all results up to {last} replaced, the outputs are right"
        return f"NOT RECOVERED with {culprits} replaced; {right}: {where} may be to blame as well"
    if found.culprits:
        if not found.outputs.before:
            return f"FOUND {culprits}: the outputs cannot be compared"
        if all(error.is_right for error in found.outputs.before):
            return f"FOUND {culprits}: the outputs are within rounding of the good package's all the same"
        recovery = found.outputs.recovery
        word = "PROVED" if recovery is Recovery.RECOVERED else "NOT PROVED"
        return f"{word} with the results of {culprits} replaced, the outputs {recovery.value}"
    if found.is_clean:
        return "WITHIN ROUNDING" if found.suspects else "SAME"
    return "NOT FOUND: the outputs differ, and no launch writes something else from the same inputs"


def settings_lines(found: SettingsBisection) -> list[str]:
    """The builds of an earlier, interrupted bisection with their results, and the changes that fix the model.

    The other builds are told when they end, each by the line of its step.
    """
    earlier = found.trials[: found.known]
    width = max((len(trial.name) for trial in earlier), default=0)
    lines = [f"{t.name:<{width}}  {wording.duration(t.seconds):>8}  {result_text(t)}" for t in earlier]
    if earlier:
        lines += [f"note: the first {wording.pluralize(found.known, 'build')} had been made before", ""]
    builds = wording.pluralize(len(found.trials), "build")
    if found.trials[0].is_right:
        left = wording.join_truncated(found.trials[0].not_compared, _MAX_NOT_COMPARED)
        reached = f" as far as compared; not compared: {left}" if left else ""
        return [*lines, f"NOTHING WRONG in the baseline{reached}; {builds}"]
    if found.ended_after is not None:
        return [*lines, *_unfinished_lines(found, builds)]
    if not found.changes:
        return [*lines, f"NOT FOUND: no setting, pass, lowering or decomposition that was tried fixes it; {builds}"]
    first, *others = found.lines
    return [
        *lines,
        f"FIXED by  {first}",
        *(f"          {line}" for line in others),
        f"  what    {found.cause}; {builds}",
    ]


def _unfinished_lines(found: SettingsBisection, builds: str) -> list[str]:
    """The smallest set of changes so far that fixes the model, where the time was over before the search."""
    so_far = "fixed by all of these together, of which some may be enough:" if found.changes else "nothing fixes it yet"
    return [
        f"NOT FINISHED after {wording.duration(found.ended_after or 0.0)}: {so_far}",
        *(f"          {line}" for line in found.lines),
        f"  what    {f'{found.cause}; ' if found.cause else ''}{builds}",
        "  next    the same command goes on with the next build; --time-limit SECONDS gives it longer",
    ]
