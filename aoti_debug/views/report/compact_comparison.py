"""A comparison with the program as compact plain data for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from aoti_debug.base import terminal_cells
from aoti_debug.base.terminal_cells import UNLIMITED, Column
from aoti_debug.compare.by_module import COLUMNS, columns_of, module_cells, module_notes, modules_of
from aoti_debug.compare.comparison import SILENT, Comparison, Row
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.modules import WHOLE
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.text import coverage_lines, eager_error, state_lines, values_text
from aoti_debug.package.argument_values import unravel
from aoti_debug.views.report.compact_launches import Table
from aoti_debug.views.report.redaction import Redaction

_SAME_CODE = "not independent: the launch runs the same code as the program in eager; only float64 differs"
_LONGEST = 60  # characters of the path of a module
VERDICTS = tuple(verdict.value for verdict in LaunchVerdict)


class ComparedLaunches:
    """The rows of a comparison by launch, and what they share."""

    def __init__(self, comparison: Comparison, redaction: Redaction) -> None:
        self._comparison = comparison
        self._redaction = redaction
        self._rows = {row.launch.id: row for row in comparison.rows if row.reason != SILENT}
        self._reasons = Table()

    def launch(self, id_: str) -> list[Any] | None:
        """The row of a launch as a list; None if it has none.

        [verdict, reason, notes], and if it was compared: local, inherited and eager's error, median and largest ULP,
        rtol, atol, condition, metric.
        """
        row = self._rows.get(id_)
        if row is None:
            return None
        same_code = (_SAME_CODE,) if row.same_code and row.outputs else ()
        notes = [self._sentence(note) for note in (*row.notes, *same_code)]
        entry = [VERDICTS.index(row.verdict.value), self._sentence(row.reason), notes]
        worst = row.worst
        return entry if worst is None else [*entry, *_numbers(row, worst)]

    def shared(self, shown: Collection[str]) -> dict[str, Any]:
        """The parts that belong to no single launch; errors in detail only of the launches that are shown."""
        wrong = self._comparison.first_wrong
        rows = [row for id_, row in self._rows.items() if id_ in shown]
        sentences = [*coverage_lines(self._comparison, UNLIMITED), *state_lines(self._comparison)]
        return {
            "verdicts": VERDICTS,
            "reasons": self._reasons.items,
            "counts": Counter(row.verdict.value for row in self._rows.values()),
            "first_wrong": None if wrong is None else wrong.launch.id,
            "spreads": {row.launch.id: found for row in rows if (found := _spreads(row))},
            "is_measured": any(row.outputs for row in rows),
            "summary": list(self._redaction.redact_all(sentences)),
            "modules": self._modules(),
        }

    def _modules(self) -> dict[str, Any] | None:
        """The table of modules, as the templates write it; None where no module is known, or nothing was measured."""
        modules = modules_of(self._comparison)
        if not any(row.outputs for row in self._rows.values()) or {m.part.name for m in modules} <= {WHOLE}:
            return None
        columns = columns_of(modules)
        texts = [[self._redaction.redact(str(cell)) for cell in module_cells(module, columns)] for module in modules]
        return {
            "columns": [asdict(column) for column in columns],
            "rows": [[_cell(text, column) for text, column in zip(row, columns, strict=True)] for row in texts],
            "notes": [self._redaction.redact(note) for note in module_notes(self._comparison, modules)],
        }

    def _sentence(self, text: str) -> int | None:
        return self._reasons.index(text, lambda: self._redaction.redact(text)) if text else None


def _cell(text: str, column: Column) -> dict[str, Any]:
    is_name = column is COLUMNS[0]
    return {
        "text": text,
        "shown": terminal_cells.shorten_middle(text, _LONGEST) if is_name else text,
        "is_name": is_name,
    }


def _numbers(row: Row, worst: Measurement) -> list[float | None]:
    numbers = (
        worst.relative,
        (row.inherited or {}).get(worst.argument),
        eager_error(worst),
        worst.ulp_median,
        worst.ulp_max,
        worst.rtol,
        worst.atol,
        None if worst.sensitivity < 0 else worst.sensitivity,
        worst.metric,
    )
    return [None if number is None else float(f"{number:.4g}") for number in numbers]


def _spreads(row: Row) -> list[Mapping[str, Any]]:
    """The outputs of a launch whose errors are known in detail, the one that the verdict is about first."""
    outputs = sorted((o for o in row.outputs if o.spread is not None), key=lambda output: output is not row.worst)
    return [_spread(output) for output in outputs]


def _spread(output: Measurement) -> Mapping[str, Any]:
    spread, worst = output.spread, output.worst
    assert spread is not None
    place = "" if worst is None else ", ".join(map(str, unravel(worst.index, output.shape)))
    return {
        "kind": "wrong",
        "argument": output.argument,
        "value": output.value,
        "operator": output.operator,
        "dtype": output.dtype,
        "shape": output.shape,
        "count": output.count,
        "wrong": output.wrong,
        "element": "" if worst is None else f"{output.argument}[{place}] {values_text(worst)}",
        **asdict(spread),
    }
