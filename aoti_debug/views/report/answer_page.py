"""The pages of `invariance`, `equal` and `precision`: an answer, and tables of launches, modules, builds.

The directory of an answer keeps it as answer.json, of which `aoti-debug report` makes the page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.files.stamped_directories import LATEST
from aoti_debug.base.terminal_cells import Column
from aoti_debug.compare.bisect.build_trials import BuildTrial, result_text
from aoti_debug.compare.bisect.equal_result import (
    EqualEnd,
    EqualSearch,
    equal_lines,
    launch_text,
    price_text,
    why_unequal,
)
from aoti_debug.compare.bisect.equality import UnequalLaunch
from aoti_debug.compare.invariance.remedies import RemedyTrial
from aoti_debug.compare.invariance.text import RELATIONS, invariance_lines, launch_lines, trial_lines
from aoti_debug.compare.invariance.variance import LaunchRelation
from aoti_debug.compare.invariance.varying_launches import Invariance, VaryingLaunch
from aoti_debug.compare.measure.output_errors import decibels
from aoti_debug.compare.what_if.precision import RoundedModel, RoundedPart, RoundedParts
from aoti_debug.compare.what_if.precision_text import COLUMNS, conclusion, error_text, notes_of, part_cells, whole_cells
from aoti_debug.runs.run.timed_pairs import PairedTimes
from aoti_debug.views.report.page import LONGEST, PageParts, render

FORMAT = 1
NAME = "answer.json"
PAGE = "report/index.html"
MAX_ROWS = 400  # of a table
_PARTS = PageParts("answer.html", (), ("report.css",), ())
_KINDS = (ResultKind.DIFFS, ResultKind.BISECTS, ResultKind.REPLAYS)
_DECADES = 6.0  # of errors, which a bar shows


@dataclass(frozen=True)
class AnswerCell:
    """A cell of a table.

    Attributes:
        tone: "good", "warn", "bad", or "" for none.
        bar: its length, from 0 to 1; None for no bar.
        shown: the text as far as it is shown; "" for all of it.
    """

    text: str
    tone: str = ""
    bar: float | None = None
    shown: str = ""


@dataclass(frozen=True)
class AnswerRow:
    """A row of a table, and a sentence below it, or ""."""

    cells: tuple[AnswerCell, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class AnswerTable:
    """A section of a page.

    Attributes:
        facts: sentences above the table.
        hidden: how many rows are left out.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[AnswerRow, ...]
    facts: tuple[str, ...] = ()
    hidden: int = 0


@dataclass(frozen=True, kw_only=True)
class AnswerPage:
    """The answer of a command.

    Attributes:
        command: its name.
        model: the name of the file.
        tone: "good", "open" or "bad".
        kind: the first words of the verdict, "VARIES".
        verdict: in full.
        facts: sentences below it.
        text: all that the command has printed.
    """

    command: str
    model: str
    tone: str
    kind: str
    verdict: str
    facts: tuple[str, ...]
    tables: tuple[AnswerTable, ...]
    text: tuple[str, ...]


def keep(answer: AnswerPage, directory: Path) -> None:
    """Writes an answer into the directory of its runs, over an older one.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        atomic_write.write(directory / NAME, json_data.to_text({"format": FORMAT, "answer": answer}))
    except OSError as error:
        raise UsageError(
            f"cannot write {directory / NAME}: {error.strerror}", hint="--out names another place"
        ) from error


def find(name: str | Path) -> Path | None:
    """The directory of an answer, by its path or name; None if there is none."""
    if str(name) == LATEST:
        return None  # of runs and triages
    places = (Path(), *(place for kind in _KINDS for place in kind.places()))
    return next((place / name for place in places if os.path.isfile(place / name / NAME)), None)


def read(directory: Path) -> AnswerPage:
    """The answer that a directory keeps.

    Raises:
        RunDirError: it is damaged, or of another version.
        FileNotFoundError: there is none.
    """
    hint = "run the command again"
    read_answer = lambda data: json_data.from_data(AnswerPage, data.get("answer"), "answer")  # noqa: E731
    return json_data.read_file(directory, NAME, read_answer, hint=hint, format_=FORMAT, hint_of_format=hint)


def answer_page(answer: AnswerPage, directory: Path) -> str:
    """The text of the page."""
    values = {"answer": answer, "name": directory.name, "title": f"{answer.verdict}: {answer.model}, {answer.command}"}
    return render(_PARTS, {}, values)


def write(directory: Path, output: Path | None = None) -> Path:
    """Writes the page of a directory over an older one; returns its path.

    Args:
        output: the file; None for report/index.html in the directory.

    Raises:
        RunDirError: the answer is damaged.
        UsageError: the file cannot be written.
    """
    return atomic_write.write_page(answer_page(read(directory), directory), output, directory / PAGE)


def _name(text: str) -> AnswerCell:
    return AnswerCell(text, shown=terminal_cells.shorten_middle(text, LONGEST))


def _table(title: str, columns: Sequence[str | Column], rows: Iterable[AnswerRow], *facts: str) -> AnswerTable:
    found = tuple(rows)
    return AnswerTable(
        title=title,
        columns=tuple(column if isinstance(column, Column) else Column(column) for column in columns),
        rows=found[:MAX_ROWS],
        facts=tuple(fact for fact in facts if fact),
        hidden=len(found[MAX_ROWS:]),
    )


def _number(title: str) -> Column:
    return Column(title, align_right=True)


_TONES = {
    LaunchRelation.SAME: ("same", "good"),
    LaunchRelation.BEGINS: ("begins", "bad"),
    LaunchRelation.FOLLOWS: ("passes on", "warn"),
    LaunchRelation.ABSORBS: ("takes away", "good"),
    LaunchRelation.MIXES: ("mixes rows", "bad"),
    LaunchRelation.COUNTS: ("indices", ""),
    LaunchRelation.UNREPEATABLE: ("not repeatable", "bad"),
    LaunchRelation.UNKNOWN: ("not known", "warn"),
}
_MEANINGS = (
    "same: the same bits of the sample as alone; begins: read the same bits, and wrote others; passes on: read other "
    "bits, and wrote others; takes away: read other bits, and wrote the same; mixes rows: changes with the values of "
    "the other rows; indices: read nothing of the sample"
)


def of_invariance(
    found: Invariance, trials: Sequence[RemedyTrial], padding: PairedTimes | None, model: str
) -> AnswerPage:
    """The answer of `aoti-debug invariance`.

    Args:
        trials: builds with other settings.
        padding: times of a call of the size that is enough, beside the smallest size.
        model: the name of the file.
    """
    lines = invariance_lines(found, trials, padding, most=MAX_ROWS)
    tone = "bad" if found.is_finding else "good" if found.is_complete else "open"
    kind = found.verdict.partition(" in ")[0].partition(" from ")[0].partition(",")[0]
    return AnswerPage(
        command="invariance",
        model=model,
        tone=tone,
        kind=kind,
        verdict=found.verdict,
        facts=tuple(lines[:2]),
        tables=tuple(table for table in _of_sample(found, trials) if table.rows or table.facts),
        text=tuple(lines),
    )


def _of_sample(found: Invariance, trials: Sequence[RemedyTrial]) -> Iterator[AnswerTable]:
    lists = (found.begins, found.mixes, found.unrepeatable, found.unknown)
    rows = [_varying(item, launch_lines(item, found), RELATIONS[item.relation]) for of in lists for item in of]
    own = "begins of its own as well, given the bits that the sample has alone"
    rows += [_varying(item, launch_lines(item, found), own) for item in found.own or ()]
    yield _table("Where the bits of the sample begin to differ", ("launch", "kernel", "what"), rows)
    changed = [one for one in found.relations if set(one.relations) != {LaunchRelation.SAME}]
    same = wording.pluralize(len(found.relations) - len(changed), "launch")
    runs = [run.surroundings.text for run in found.runs]
    yield _table(
        "Launches in each run",
        ("launch", "kernel", "module", *runs),
        (
            AnswerRow(
                (
                    AnswerCell(one.launch.id),
                    _name(one.launch.kernel),
                    _name(wording.join_truncated(one.launch.site.provenance.modules, 2)),
                    *(AnswerCell(*_TONES[relation]) for relation in one.relations),
                )
            )
            for one in changed
        ),
        f"Not listed: {same} with the same bits of the sample in every run.",
        _MEANINGS if changed else "",
    )
    yield _table(
        "What was built to help",
        ("build", "what became of it"),
        (
            AnswerRow(
                (AnswerCell(" ".join(trial.lines)), AnswerCell(trial.said, "good" if trial.seems_to_work else "bad")),
                _noted(trial_lines(trial)),
            )
            for trial in trials
        ),
    )


def _varying(item: VaryingLaunch, lines: Iterable[str], what: str) -> AnswerRow:
    launch = item.first.launch
    return AnswerRow((AnswerCell(launch.id), _name(launch.kernel), AnswerCell(what)), _noted(lines))


def _noted(lines: Iterable[str]) -> str:
    """The lines below a first one, as a note."""
    return "\n".join(" ".join(line.split()) for line in list(lines)[1:])


def of_equal(found: EqualSearch, model: str) -> AnswerPage:
    """The answer of `aoti-debug equal`; `model` is the name of the file."""
    lines = [line for line in equal_lines(found) if line]
    verdict = next(line for line in lines if line.partition(" ")[0] in ("EQUAL", "NOT", "CANNOT"))
    kind, _, rest = verdict.partition(": ") if found.end is not EqualEnd.EQUAL else verdict.partition(" with ")
    tone = {EqualEnd.ALREADY: "good", EqualEnd.CANNOT: "bad"}.get(found.end, "open")
    return AnswerPage(
        command="equal",
        model=model,
        tone="bad" if found.kind == "bug" else tone,
        kind=kind if rest else found.end.value,
        verdict=verdict,
        facts=tuple(line.strip() for line in lines[lines.index(verdict) + 1 :] if line.startswith("  kind")),
        tables=tuple(table for table in _of_search(found) if table.rows),
        text=tuple(lines),
    )


def _of_search(found: EqualSearch) -> Iterator[AnswerTable]:
    yield _table(
        "What makes it equal",
        ("change", "heals"),
        (
            AnswerRow(
                (AnswerCell(step.change.option, shown=step.change.option), AnswerCell(_healed(step.heals))),
                "" if step.price is None else price_text(step.price),
            )
            for step in found.steps
        ),
        f"All together: {price_text(found.price)}" if found.price is not None else "",
    )
    best = None if found.best is None else found.best.equality
    yield _table(
        "Launches that stay unequal",
        ("launch", "kernel", "line", "operators"),
        (
            AnswerRow(
                (
                    AnswerCell(launch.launch),
                    _name(launch.kernel),
                    AnswerCell(launch.line),
                    AnswerCell(wording.join_truncated(launch.values, 3)),
                ),
                why_unequal(launch, found),
            )
            for launch in (() if best is None else best.launches)
        ),
    )
    most = max((_unequal(trial) for trial in found.trials), default=0)
    yield _table(
        "Builds",
        ("build", _number("unequal launches"), "result", _number("time")),
        (
            AnswerRow(
                (
                    AnswerCell(trial.name),
                    AnswerCell(
                        "" if trial.equality is None else str(_unequal(trial)),
                        bar=_unequal(trial) / most if most and trial.equality is not None else None,
                    ),
                    AnswerCell(result_text(trial), "good" if trial.equality and trial.equality.is_equal else ""),
                    AnswerCell(wording.duration(trial.seconds)),
                )
            )
            for trial in found.trials
        ),
    )


def _unequal(trial: BuildTrial) -> int:
    return 0 if trial.equality is None else len(trial.equality.launches)


def _healed(launches: Sequence[UnequalLaunch]) -> str:
    return ", ".join(map(launch_text, launches)) or "no launch: the graph that kernels are generated from differs"


def of_precision(found: RoundedModel, model: str) -> AnswerPage:
    """The answer of `aoti-debug precision`; `model` is the name of the file."""
    verdict, *more = conclusion(found)
    return AnswerPage(
        command="precision",
        model=model,
        tone="bad" if found.proposal is None else "good" if found.is_fine else "open",
        kind=f"to {found.target.name}",
        verdict=verdict,
        facts=tuple(line.strip() for line in more),
        tables=(_of_parts(found), _of_trials(found)),
        text=(verdict, *more, *notes_of(found)),
    )


def _of_parts(found: RoundedModel) -> AnswerTable:
    whole = AnswerRow((AnswerCell("all at once"), *_effects(whole_cells(found), found.whole, found)))
    rows = [AnswerRow((_name(one.part.name), *_effects(part_cells(one), one, found))) for one in found.parts]
    limit = f"Red: more than the tolerance of {found.tolerance:g}; bars: the error, {_DECADES:.0f} decades up to 1."
    rows.insert(MAX_ROWS - 1, whole)  # which is shown, however many others are not
    return _table("The most sensitive first", (found.by.value, *COLUMNS), rows, limit, *notes_of(found))


def _effects(texts: Sequence[str], of: RoundedPart | RoundedParts, found: RoundedModel) -> Iterator[AnswerCell]:
    for column, text in zip(COLUMNS, texts, strict=True):
        yield _error(text, of.error, found) if column.title == "error" else AnswerCell(text)


def _error(text: str, error: float, found: RoundedModel) -> AnswerCell:
    length = 1.0 if error >= 1 else 0.0 if error <= 0 else max(0.0, 1 + math.log10(error) / _DECADES)
    return AnswerCell(text, "bad" if error > found.tolerance else "good", length)


def _of_trials(found: RoundedModel) -> AnswerTable:
    def cells(trial: RoundedParts) -> Iterator[AnswerCell]:
        loudness = decibels(trial.error)
        yield AnswerCell(str(len(trial.kept)))
        yield _error(error_text(trial.error), trial.error, found)
        yield AnswerCell("" if loudness is None else f"{loudness:.0f} dB")
        yield AnswerCell(wording.join_truncated(trial.kept, 6))

    trials = sorted(found.trials, key=lambda trial: len(trial.kept))
    rows = (AnswerRow(tuple(cells(trial))) for trial in trials)
    columns = (_number("kept"), _number("error"), _number("SNR"), "which")
    return _table(f"Several {found.by.value}s at once", columns, rows)
