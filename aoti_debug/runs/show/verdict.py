"""The verdict on a run as lines for a terminal: the headline, the guilty launch, the evidence, the next commands."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base import terminal_cells, wording
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import Certainty
from aoti_debug.runs.diagnosis.findings import FAULT, HANG
from aoti_debug.runs.diagnosis.verdict import Proof, Verdict
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.show import text

_LISTED = 6  # suspects
_MAX_ARGUMENTS = 12
_SENTENCE = 100  # columns
_LABEL = 11  # columns

_HEADS = {
    Proof.CERTAIN: "in launch",
    Proof.RANGE: "in one of",
    Proof.LIKELY: "while launch",
    Proof.NONE: "in no launch that can be named",
}


def verdict_lines(verdict: Verdict, width: int) -> list[str]:
    """The verdict: the fault, the guilty launch with model line and arguments, the evidence, the next commands."""
    kind = HANG if verdict.hangs else FAULT
    lines = terminal_cells.fitted(f"{kind.heading} {verdict.headline}", width)
    guilty = verdict.launch
    if guilty is not None:
        running = " was running" if verdict.proof is Proof.LIKELY else ""
        lines += terminal_cells.wrap_words(
            [f"{_HEADS[verdict.proof]} {guilty.id}  {guilty.kernel}{running}"], width, "  "
        )
        lines += _source(guilty, width)
        lines += _grids(guilty, width)
        lines += argument_lines(guilty, width)
    elif verdict.suspects:
        lines.append(f"  {_HEADS[verdict.proof]} {wording.pluralize(len(verdict.suspects), 'launch')}:")
        shown = verdict.suspects[:_LISTED]
        lines += _suspects(shown, width)
        if len(verdict.suspects) > len(shown):
            lines.append(f"    … to {verdict.suspects[-1].id}")
    else:
        lines.append(f"  {_HEADS[verdict.proof]}")
    lines += text.labelled("error", verdict.message, width, _LABEL) if verdict.message else []
    lines += text.labelled("because", verdict.why, width, _LABEL)
    if verdict.surfaced is not None:
        lines += text.labelled("noticed", f"in {verdict.surfaced.id}  {verdict.surfaced.kernel}", width, _LABEL)
    lines += _stack(verdict.frames, width)
    for wait in verdict.waits[:_LISTED]:
        lines += text.labelled("waits", wait, width, _LABEL)
    lines += [f"  next     {command}" for command in verdict.next_commands]
    return lines


def _suspects(shown: Sequence[Launch], width: int) -> list[str]:
    """One line for each launch: number, kernel and model line in columns."""
    rows = [(x.id, x.kernel, text.model_line(x.site.provenance)) for x in shown]
    number, kernel, line = (max(terminal_cells.count(row[column]) for row in rows) for column in (0, 1, 2))
    kernel = min(kernel, width - number - line - 8)
    shortened = [terminal_cells.shorten_middle(row[1], kernel) for row in rows]
    return [
        f"    {terminal_cells.pad_left(row[0], number)}  {terminal_cells.pad(name, kernel)}  {row[2]}"
        for row, name in zip(rows, shortened, strict=True)
    ]


def _source(launch: Launch, width: int) -> list[str]:
    provenance = launch.site.provenance
    if not provenance.source:
        return text.labelled("model", "line unknown", width, _LABEL)
    sure = "" if provenance.certainty is Certainty.EXACT else f" ({provenance.certainty.value})"
    lines: list[str] = []
    for frame in provenance.source[:2]:
        lines += text.labelled("model", f"{frame.file}:{frame.line} in {frame.function}{sure}", width, _LABEL)
        if frame.text:
            lines.append(terminal_cells.shorten_middle(f"             {frame.text.strip()}", width))
    return lines


def _grids(launch: Launch, width: int) -> list[str]:
    """The number of blocks of each grid."""
    lines: list[str] = []
    for grid in launch.grids:
        name = "" if grid.kernel == launch.kernel else f"{grid.kernel} "
        shape = " × ".join(map(str, grid.grid))
        lines += text.labelled("grid", f"{name}{shape}, {wording.pluralize(grid.num_warps, 'warp')}", width, _LABEL)
    return lines


def _stack(frames: Sequence[str], width: int) -> list[str]:
    """The host's call stack, innermost frame first; long lines lose their middle."""
    room = width - 11
    shown = [terminal_cells.shorten_middle(frame, room) for frame in frames]
    return [f"  {'stack' if position == 0 else '':<9}{frame}" for position, frame in enumerate(shown)]


def argument_sentences(verdict: Verdict | None) -> list[str]:
    """One line an argument of the guilty launch; none where no launch can be named."""
    launch = verdict.launch if verdict is not None else None
    return [] if launch is None else [line.strip() for line in argument_lines(launch, _SENTENCE)]


def argument_lines(launch: Launch, width: int) -> list[str]:
    """The arguments of a launch with their roles and values; at most 12 of them."""
    recorded = [a for a in launch.args if a.tensor is not None or isinstance(a.before, Number)]
    lines: list[str] = []
    names = min(max((len(a.name) for a in recorded[:_MAX_ARGUMENTS]), default=0), 32)
    kinds = [text.ROLES[a.role] or ("" if a.tensor is not None else a.spec.ctype) for a in recorded[:_MAX_ARGUMENTS]]
    column = max(7, *map(len, kinds)) + 1 if kinds else 0
    for argument, kind in zip(recorded, kinds, strict=False):
        value = argument.tensor or argument.before
        label = "args" if not lines else ""
        words = (f"  {label:<9}{kind:<{column}}{argument.name:<{names}}", text.value(value))
        lines += terminal_cells.wrap_words(words, width, hang=" " * 19)
    if len(recorded) > _MAX_ARGUMENTS:
        lines.append(f"{'':11}and {len(recorded) - _MAX_ARGUMENTS} more: aoti-debug show {launch.id}")
    return lines
