"""A comparison by module, for a person who does not read launches: errors, worst element, dtypes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.terminal_cells import Cell, Column, Sentence
from aoti_debug.compare.comparison import SILENT, Comparison, Row
from aoti_debug.compare.measure.output_errors import decibels
from aoti_debug.compare.measure.verdicts import LaunchVerdict, verdict_on, verdict_on_output
from aoti_debug.compare.modules import (
    TIME_LEGEND,
    ModelPart,
    PartedBy,
    TimeShare,
    fused_note,
    fused_times_note,
    parts_of,
    time_shares,
)
from aoti_debug.compare.protocol.measurement import LARGEST, Measurement
from aoti_debug.compare.text import eager_error, short, values_text
from aoti_debug.package.argument_values import unravel

_TIME = Column("time", align_right=True)
COLUMNS = (
    Column("module", min_width=12, share=2),
    Column("launches", align_right=True),
    _TIME,
    Column("dtype", min_width=7),
    Column("local", align_right=True),
    Column("local SNR", align_right=True),
    Column("eager", align_right=True),
    Column("inherited", align_right=True),
    Column("inherited SNR", align_right=True, dropped_below=100),
    Column("worst element", min_width=14, share=1, dropped_below=120),
    Column("verdict", min_width=10, share=1),
)
LEGEND = (
    "of each module the largest error of a launch, relative, root mean square; local: from the launch's own inputs, "
    "against float64; eager: eager's own error there; inherited: against the whole program in eager; SNR: the "
    "signal-to-noise ratio of an error"
)


@dataclass(frozen=True)
class WorstElement:
    """The element of a module that is farthest off, compared with what rounding explains there.

    Attributes:
        launch: that wrote it.
        output: the measurements of the tensor that it lies in.
    """

    launch: str
    output: Measurement

    def __str__(self) -> str:
        element = self.output.worst
        if element is None:
            return ""
        place = ", ".join(map(str, unravel(element.index, self.output.shape)))
        return f"{self.launch} {self.output.argument}[{place}] {values_text(element)}"


@dataclass(frozen=True, kw_only=True)
class ModuleErrors:
    """The errors of a module.

    Attributes:
        part: the module, with its launches.
        compared: how many of them were compared.
        dtypes: of what they write.
        local: the largest error of a launch, against float64, from the inputs that it was recorded with: relative, root
            mean square; LARGEST where NaN or infinities arise otherwise; None if no launch was compared.
        eager: that of eager in the same tensor.
        inherited: the largest difference from the whole program in eager, likewise; None if it is not known.
        worst: None where everything is equal.
        time: None if it was not measured.
    """

    part: ModelPart
    compared: int
    dtypes: tuple[str, ...]
    local: float | None
    eager: float | None
    inherited: float | None
    worst: WorstElement | None
    verdict: LaunchVerdict
    time: TimeShare | None = None


def modules_of(comparison: Comparison, depth: int | None = None) -> tuple[ModuleErrors, ...]:
    """The errors of the modules, in the order of their first launches.

    Args:
        depth: the number of names in the path of a module; None for as many as there are.
    """
    rows = {row.launch: row for row in comparison.rows if row.reason != SILENT}
    shares = shares_of(comparison, depth)
    return tuple(
        _errors(part, [rows[of] for of in part.launches], shares.get(part.name))
        for part in parts_of(rows, PartedBy.MODULE, depth)
    )


def shares_of(comparison: Comparison, depth: int | None = None) -> dict[str, TimeShare]:
    """The shares of the modules in the time of a call; none if it was not measured."""
    return {} if comparison.times is None else time_shares(comparison.run.manifest.sites, comparison.times, depth)


def _errors(part: ModelPart, rows: Sequence[Row], time: TimeShare | None) -> ModuleErrors:
    outputs = [(row, output) for row in rows for output in row.outputs]
    inherited = [value for row in rows for value in (row.inherited or {}).values()]
    largest = max((output for _, output in outputs), key=_local, default=None)
    off = [(row, output) for row, output in outputs if output.worst is not None]
    worst = max(off, key=lambda pair: pair[1].excess, default=None)
    return ModuleErrors(
        part=part,
        compared=sum(row.is_compared for row in rows),
        dtypes=tuple(dict.fromkeys(output.dtype for _, output in outputs)),
        local=None if largest is None else _local(largest),
        eager=None if largest is None else eager_error(largest),
        inherited=max(inherited, default=None),
        worst=None if worst is None else WorstElement(worst[0].launch.id, worst[1]),
        verdict=verdict_on([output for _, output in outputs]) if outputs else _without_outputs(rows),
        time=time,
    )


def _local(output: Measurement) -> float:
    return LARGEST if output.lost else output.relative


def _without_outputs(rows: Sequence[Row]) -> LaunchVerdict:
    """The verdict on a module of which nothing was measured: where launches are compared with their sources."""
    order = list(LaunchVerdict)
    known = [row.verdict for row in rows if row.verdict is not LaunchVerdict.NOT_COMPARABLE]
    return max(known, key=order.index, default=LaunchVerdict.NOT_COMPARABLE)


def module_lines(modules: Sequence[ModuleErrors], notes: Sequence[str], width: int) -> list[str]:
    """The table of the modules, and notes below it."""
    columns = columns_of(modules)
    table = terminal_cells.table(columns, [module_cells(module, columns) for module in modules], width)
    return [
        *table.lines_and_hidden(width),
        "",
        *(line for note in notes for line in terminal_cells.wrapped(note, width)),
    ]


def columns_of(modules: Sequence[ModuleErrors]) -> tuple[Column, ...]:
    """The columns of the table: that of times only where they were measured."""
    is_timed = any(module.time is not None for module in modules)
    return tuple(column for column in COLUMNS if is_timed or column is not _TIME)


def module_notes(comparison: Comparison, modules: Sequence[ModuleErrors], depth: int | None = None) -> list[str]:
    """The sentences below the table: the meaning of its columns, where times come from, fused modules."""
    parts = [module.part for module in modules]
    times = comparison.times
    timed = (
        ()
        if times is None
        else (f"{TIME_LEGEND}; {times.source}", fused_times_note(parts, shares_of(comparison, depth)))
    )
    return [note for note in (LEGEND, *timed, fused_note(parts)) if note]


def module_cells(module: ModuleErrors, columns: Sequence[Column]) -> list[str | Cell]:
    """The cells of a module under these of the COLUMNS."""
    return [cell for column, cell in zip(COLUMNS, _cells(module), strict=True) if column in columns]


def _cells(module: ModuleErrors) -> Iterator[str | Cell]:
    count = len(module.part.launches)
    yield module.part.name
    yield str(count) if module.compared == count else f"{module.compared} of {count}"
    yield "" if module.time is None else str(module.time)
    yield wording.comma_separated(module.dtypes) if module.dtypes else ""
    yield from (_number(module.local), loudness(module.local), _number(module.eager))
    yield from (_number(module.inherited), loudness(module.inherited))
    yield Sentence("" if module.worst is None else str(module.worst))
    yield Sentence(module.verdict.value)


def _number(error: float | None) -> str:
    return "" if error is None else short(error)


def loudness(error: float | None) -> str:
    """The signal-to-noise ratio of a relative error as text, "52 dB"; "" without an error."""
    ratio = None if error is None or error >= LARGEST else decibels(error)
    return "" if ratio is None else f"{ratio:.0f} dB"


def modules_document(modules: Sequence[ModuleErrors]) -> list[dict[str, Any]]:
    """The modules as JSON data."""
    return [_document(module) for module in modules]


def fused_document(comparison: Comparison, modules: Sequence[ModuleErrors], depth: int | None) -> list[dict[str, Any]]:
    """The times of the modules that have no launch of their own, as JSON data."""
    own = {module.part.name for module in modules}
    shares = shares_of(comparison, depth)
    return [{"name": name, "time": share.data} for name, share in shares.items() if name not in own]


def _document(module: ModuleErrors) -> dict[str, Any]:
    worst = module.worst
    return {
        "name": module.part.name,
        "launches": [launch.id for launch in module.part.launches],
        "also": list(module.part.also),
        "compared": module.compared,
        "dtypes": list(module.dtypes),
        "local": _data(module.local),
        "eager": _data(module.eager),
        "inherited": _data(module.inherited),
        "verdict": module.verdict.value,
        "time": None if module.time is None else module.time.data,
        "worst": None
        if worst is None or worst.output.worst is None
        else {
            "launch": worst.launch,
            "argument": worst.output.argument,
            "index": list(unravel(worst.output.worst.index, worst.output.shape)),
            "actual": worst.output.worst.actual,
            "expected": worst.output.worst.expected,
            "eager": worst.output.worst.eager,
            "wrong": verdict_on_output(worst.output) is LaunchVerdict.WRONG,
        },
    }


def _data(error: float | None) -> dict[str, Any] | None:
    """An error and its ratio; `relative` is null where NaN or infinities arise otherwise."""
    if error is None:
        return None
    is_finite = error < LARGEST
    return {"relative": error if is_finite else None, "snr_db": decibels(error) if is_finite else None}
