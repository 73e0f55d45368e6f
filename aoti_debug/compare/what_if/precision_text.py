"""The effect of a narrower dtype as lines of text, and as JSON data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.terminal_cells import Cell, Column
from aoti_debug.compare.measure.output_errors import decibels
from aoti_debug.compare.modules import PartedBy, fused_note
from aoti_debug.compare.text import short
from aoti_debug.compare.what_if.cast_program import BuiltProposal
from aoti_debug.compare.what_if.precision import RoundedModel, RoundedPart, RoundedParts
from aoti_debug.compare.what_if.rounding import Headroom, OutputEffect

FORMAT = 1
_MAX_NAMED = 6
COLUMNS = (
    Column("launches", align_right=True, dropped_below=110),
    Column("error", align_right=True),
    Column("SNR", align_right=True),
    Column("argmax", align_right=True),
    Column("overflow", align_right=True),
    Column("to zero", align_right=True),
    Column("subnormal", align_right=True),
    Column("largest", align_right=True, dropped_below=110),
    Column("worst element", min_width=14, share=1, dropped_below=100),
)
_LEGEND = (
    "error: the output that changes most, root mean square, relative, against the same package without rounding; "
    "argmax: rows of the last dimension whose largest element is another one; overflow, to zero, subnormal: shares of "
    "the numbers that are read and written there"
)


def precision_lines(found: RoundedModel, width: int) -> list[str]:
    """The table of the parts, the most sensitive one first, and the proposal."""
    what = Column(found.by.value, min_width=12, share=2)
    rows: list[list[str | Cell]] = [[part.part.name, *part_cells(part)] for part in found.parts]
    rows.append(["all at once", *whole_cells(found)])
    table = terminal_cells.table((what, *COLUMNS), rows, width)
    lines = [*table.lines_and_hidden(width), ""]
    lines += [line for note in notes_of(found) for line in terminal_cells.wrapped(note, width)]
    return [*lines, "", *(line for text in conclusion(found) for line in terminal_cells.fitted(text, width))]


def notes_of(found: RoundedModel) -> list[str]:
    """The sentences below the table: the meaning of its columns, and what the errors do not show."""
    notes = [_LEGEND, fused_note(part.part for part in found.parts)]
    if found.untouched:
        names = wording.join_truncated(found.untouched, _MAX_NAMED)
        notes.append(f"note: nothing there is rounded to {found.target.name}: {names}")
    if found.noise:
        text = (
            f"note: without rounding, the outputs change by {error_text(found.noise)} from one run to the next: errors "
        )
        notes.append(f"{text}that are not larger show nothing")
    notes += [f"note: {reason}" for reason in found.refused[:_MAX_NAMED]]
    if len(found.refused) > _MAX_NAMED:
        notes.append(f"note: and {len(found.refused) - _MAX_NAMED} more tensors that were not rounded")
    return [note for note in notes if note]


def part_cells(part: RoundedPart) -> list[str]:
    """The cells of a part under COLUMNS."""
    room = part.headroom
    return [
        str(len(part.part.launches)),
        *_effect_cells(part.effects, part.error),
        *_room_cells(room),
        short(room.largest),
        _worst(part.effects),
    ]


def whole_cells(found: RoundedModel) -> list[str]:
    """The cells of all parts at once under COLUMNS."""
    room = sum((part.headroom for part in found.parts), Headroom())
    launches = sum(len(part.part.launches) for part in found.parts)
    effects = found.whole.effects
    return [
        str(launches),
        *_effect_cells(effects, found.whole.error),
        *_room_cells(room),
        short(room.largest),
        _worst(effects),
    ]


def _effect_cells(effects: Sequence[OutputEffect], error: float) -> list[str]:
    return [error_text(error), _snr(error), _argmax(effects)]


def error_text(error: float) -> str:
    """A relative error as text."""
    return "NaN/Inf" if error == float("inf") else short(error)


def _snr(error: float) -> str:
    loudness = decibels(error)
    return "" if loudness is None else f"{loudness:.0f} dB"


def _argmax(effects: Iterable[OutputEffect]) -> str:
    choices = [effect.choices for effect in effects if effect.choices is not None]
    return f"{sum(c.other for c in choices)}/{sum(c.rows for c in choices)}" if choices else ""


def _room_cells(room: Headroom) -> list[str]:
    return [_share(room, count) for count in (room.overflow, room.to_zero, room.subnormal)]


def _share(room: Headroom, count: int) -> str:
    share = 100 * room.share(count)
    return "0" if not count else "<0.1 %" if share < 0.1 else f"{share:.1f} %"


def _worst(effects: Iterable[OutputEffect]) -> str:
    """ "0[1, 3]: 1.25, was 1.2501": the element of an output that is farthest off."""
    changed = [effect.error for effect in effects if effect.error.different]
    worst = max(changed, key=lambda error: (bool(error.misplaced), error.relative), default=None)
    if worst is None or worst.example is None:
        return ""
    element = worst.example
    return f"{worst.index}[{', '.join(map(str, element.index))}]: {element.actual}, was {element.expected}"


def conclusion(found: RoundedModel) -> list[str]:
    """The lines of the proposal, and how it was verified."""
    return [*_proposed(found), *_built(found)]


def _proposed(found: RoundedModel) -> list[str]:
    target, limit = found.target.name, short(found.tolerance)
    noun, proposal = found.by.value, found.proposal
    count = len(found.parts)
    if proposal is None:
        return [
            f"KEEP all {wording.pluralize(count, noun)} as they are: no rounding to {target} that was tried changes "
            f"the outputs by at most {limit}",
        ]
    changes = f"changes the outputs by {error_text(proposal.error)}, at most {limit}"
    tried = "tried" if found.is_open_inside else "verified"
    verified = [
        f"  {tried} by rounding in the package, all of it at once; {wording.pluralize(found.runs, 'run')} in all"
    ]
    if found.built is None or found.built.failure:
        asked = "" if found.by is PartedBy.LAUNCH else "; of an exported program, --build casts each operator"
        verified.append(f"  inside of kernels nothing was rounded{_inside(found)}{asked}")
    if not proposal.kept:
        every = f"all {wording.pluralize(count, noun)}"
        if found.is_open_inside:
            first = f"MAY BE {target} as far as rounded: rounding what {every} read and write, at once, {changes}"
        else:
            first = (
                f"{'NOT CONFIRMED for' if found.is_refuted else 'MAY BE'} {target}: rounding {every} at once {changes}"
            )
        return [first, *verified]
    names = wording.join_truncated(proposal.kept, _MAX_NAMED)
    rest = wording.pluralize(count - len(proposal.kept), noun)
    beside = wording.join_truncated(found.kept_beside, _MAX_NAMED)
    keep = "NOT CONFIRMED: keep" if found.is_refuted else "KEEP"
    rounding = f"rounding the other {rest} to {target}"
    if found.is_open_inside:
        rounding = f"rounding to {target} what the other {rest} read and write"
    return [
        f"{keep} {len(proposal.kept)} of {wording.pluralize(count, noun)} as they are: {names}",
        *([f"  with them, which the same launches compute: {beside}"] if beside else []),
        f"  {rounding} {changes}; all at once: {error_text(found.whole.error)}",
        *verified,
    ]


def _inside(found: RoundedModel) -> str:
    """ ": 2 of 3 launches may compute several operators, as 0.1 cpp_fused_mul_0"."""
    inside = found.unrounded_inside
    if not inside:
        return ""
    launches = wording.pluralize(sum(len(part.part.launches) for part in found.parts), "launch")
    more = ", and need more precision there" if found.is_open_inside else ""
    return f": {len(inside)} of {launches} may compute several operators, as {inside[0].id} {inside[0].kernel}{more}"


def _built(found: RoundedModel) -> Iterator[str]:
    """Yields what became of the program with casts."""
    built = found.built
    if built is None:
        return
    if built.failure:
        yield f"  built    not known: the program with casts could not be built or run: {built.failure}"
        return
    limit = short(found.tolerance)
    how = f"at most {limit}" if built.error <= found.tolerance else f"MORE than {limit}: the proposal is not confirmed"
    what = built.casts.text(found.target.name)
    yield f"  built    a program with {what}: its own kernels change the outputs by {error_text(built.error)}, {how}"
    yield from _in_eager(built, limit, is_within=built.eager_error <= found.tolerance)
    for reason in built.casts.left[:_MAX_NAMED]:
        yield f"  note     not cast: {reason}"
    if len(built.casts.left) > _MAX_NAMED:
        yield f"  note     and {len(built.casts.left) - _MAX_NAMED} more operators that were not cast"
    yield f"  program  {built.program}"


def _in_eager(built: BuiltProposal, limit: str, *, is_within: bool) -> Iterator[str]:
    """Yields what the program with casts returns in eager."""
    if built.casts.refusal:
        yield f"  eager    not known: the program with casts ends in eager with: {built.casts.refusal}"
    elif built.eager:
        fused = "it may be so only where kernels are fused as in this build"
        end = f"at most {limit}" if is_within else f"MORE than {limit}: {fused}"
        yield f"  eager    the same program, rounded after each operator: {error_text(built.eager_error)}, {end}"


def precision_document(found: RoundedModel) -> dict[str, Any]:
    """The object that `aoti-debug precision --json` prints."""
    proposal = found.proposal
    return {
        "format": FORMAT,
        "run": str(found.run.path),
        "to": found.target.name,
        "by": found.by.value,
        "tolerance": found.tolerance,
        "parts": [_part_document(part) for part in found.parts],
        "untouched": list(found.untouched),
        "all": _trial_document(found.whole),
        "proposal": None if proposal is None else _trial_document(proposal),
        "kept_beside": list(found.kept_beside),
        "trials": [{"kept": len(trial.kept), "error": json_data.number(trial.error)} for trial in found.trials],
        "built": None if found.built is None else _built_document(found.built),
        "unrounded_inside": [launch.id for launch in found.unrounded_inside],
        "noise": json_data.number(found.noise),
        "runs": found.runs,
        "not_rounded": list(found.refused),
    }


def _part_document(part: RoundedPart) -> dict[str, Any]:
    room = part.headroom
    return {
        "name": part.part.name,
        "launches": [launch.id for launch in part.part.launches],
        "dtypes": list(part.dtypes),
        "error": json_data.number(part.error),
        "snr_db": decibels(part.error),
        "outputs": [_effect_document(effect) for effect in part.effects],
        "headroom": {
            "elements": room.elements,
            "overflow": room.overflow,
            "to_zero": room.to_zero,
            "subnormal": room.subnormal,
            "largest": room.largest,
        },
    }


def _trial_document(trial: RoundedParts) -> dict[str, Any]:
    return {
        "kept": list(trial.kept),
        "error": json_data.number(trial.error),
        "snr_db": decibels(trial.error),
        "outputs": [_effect_document(effect) for effect in trial.effects],
    }


def _built_document(built: BuiltProposal) -> dict[str, Any]:
    return {
        "program": str(built.program),
        "modules": list(built.casts.modules),
        "casts": built.casts.operators,
        "left": list(built.casts.left),
        "error": None if built.failure else json_data.number(built.error),
        "snr_db": None if built.failure else decibels(built.error),
        "outputs": [_effect_document(effect) for effect in built.effects],
        "eager_error": json_data.number(built.eager_error) if built.eager else None,
        "failure": built.failure or None,
    }


def _effect_document(effect: OutputEffect) -> dict[str, Any]:
    error, choices, example = effect.error, effect.choices, effect.error.example
    return {
        "index": error.index,
        "dtype": error.dtype,
        "shape": list(effect.shape),
        "different": error.different,
        "relative": json_data.number(error.relative),
        "snr_db": decibels(error.relative),
        "misplaced": error.misplaced,
        "worst": None
        if example is None
        else {"index": list(example.index), "rounded": example.actual, "before": example.expected},
        "argmax": None if choices is None else {"rows": choices.rows, "other": choices.other},
    }
