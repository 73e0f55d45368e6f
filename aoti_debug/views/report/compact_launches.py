"""Launches, and their comparison with the program, as compact plain data for the page."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from aoti_debug.base import terminal_cells
from aoti_debug.base.dtypes import LARGEST, SHARE
from aoti_debug.base.native import exception_text
from aoti_debug.base.terminal_cells import UNLIMITED, Column
from aoti_debug.compare.by_module import COLUMNS, columns_of, module_cells, module_notes, modules_of
from aoti_debug.compare.comparison import SILENT, Comparison, Row
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.modules import WHOLE
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.text import coverage_lines, eager_error, state_lines, values_text
from aoti_debug.package.argument_values import unravel
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.diagnosis.verdict import Proof, Verdict
from aoti_debug.runs.rundir.argument_statistics import HASH_ONLY
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.views.redaction import Redaction

STATISTICS = (
    "numel", "n_nan", "n_pos_inf", "n_neg_inf", "n_zero", "min", "max", "min_index", "max_index", "mean", "std",
)  # fmt: skip
SHOWN_VALUES = 64  # elements of a small tensor that the page lists
_LITERAL = re.compile(r"-?[\d.]+(?:e[-+]?\d+)?[LfFuU]*|true|false|[A-Za-z_:]+", re.I)
_SAME_CODE = "not independent: the launch runs the same code as the program in eager; only float64 differs"
_LONGEST = 60  # characters of the path of a module
VERDICTS = tuple(verdict.value for verdict in LaunchVerdict)


class Mark(str, Enum):
    """A property that makes a launch stand out."""

    GUILTY = "guilty"
    SUSPECT = "suspect"
    ORIGIN = "origin"
    OPEN = "never returned"
    FAILED = "failed"
    WRONG_VALUE = "wrong value"
    GUARD = "guard damaged"
    NAN = "NaN"
    INF = "Inf"
    NEAR_OVERFLOW = "near overflow"


def ordered(names: Iterable[str]) -> list[str]:
    """The names of marks, the gravest first."""
    given = set(names)
    return [mark.value for mark in Mark if mark.value in given]


def value_marks(arguments: Iterable[Mapping[str, Any]]) -> list[Mark]:
    """Marks of a launch by the statistics of what it wrote; the arguments as show.document describes them."""
    present: set[Mark] = set()
    for argument in arguments:
        after = argument["after"]
        if argument["role"] == "in" or after is None or after["statistics"] is None:
            continue
        statistics, dtype = after["statistics"], (argument["tensor"] or {}).get("dtype", "")
        if statistics["n_nan"]:
            present.add(Mark.NAN)
        if statistics["n_pos_inf"] or statistics["n_neg_inf"]:
            present.add(Mark.INF)
        extremes = (statistics["min"], statistics["max"])
        shares = (abs(float(x)) / LARGEST.get(dtype, math.inf) for x in extremes if x is not None)
        if any(SHARE < share < 1 for share in shares):
            present.add(Mark.NEAR_OVERFLOW)
    return [mark for mark in Mark if mark in present]


def status_marks(run: RunDir, launch: Launch, finding: Finding, verdict: Verdict | None) -> list[Mark]:
    """Marks of a launch by how it ended and its part in the finding."""
    marks: list[Mark] = []
    if finding.where is not None and finding.where.launch == launch.id and finding.kind.is_fault:
        marks.append(Mark.GUILTY)
    elif verdict is not None and launch in verdict.suspects and finding.where is None:
        marks.append(Mark.GUILTY if verdict.proof is Proof.CERTAIN else Mark.SUSPECT)
    if finding.origin is not None and finding.origin.launch == launch.id and finding.origin != finding.where:
        marks.append(Mark.ORIGIN)
    if launch.status is LaunchStatus.OPEN and run.state is not ExitKind.RUNNING:
        marks.append(Mark.OPEN)
    if launch.status is LaunchStatus.FAILED:
        marks.append(Mark.FAILED)
    return marks


class Table:
    """A list of distinct values, found by key."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._indices: dict[Any, int] = {}

    def index(self, key: Any, make: Callable[[], Any]) -> int:
        """The index of the value with this key; `make` makes it at the first use."""
        if key not in self._indices:
            self._indices[key] = len(self.items)
            self.items.append(make())
        return self._indices[key]


class Compactor:
    """Turns launches, as show.document describes them, into a few tables."""

    def __init__(self, redaction: Redaction, root: str) -> None:
        self._redaction = redaction
        self._root = root
        self.sites = Table()
        self.layouts = Table()
        self.stacks = Table()
        self.kernels = Table()

    def tables(self) -> dict[str, Any]:
        """The tables by name, as lists."""
        tables = {"sites": self.sites, "layouts": self.layouts, "stacks": self.stacks, "kernels": self.kernels}
        return {name: table.items for name, table in tables.items()}

    def launch(self, shown: Mapping[str, Any], sources: Sequence[int]) -> dict[str, Any]:
        """The launch with indices into the tables.

        Args:
            shown: a launch of show.document.
            sources: indices of the kernel sources of its site.
        """
        begin, end = shown["begin_ns"], shown["end_ns"]
        fault = shown["fault"]
        return {
            "id": shown["id"],
            "site": self.sites.index(shown["site"], lambda: self._site(shown, sources)),
            "status": shown["status"],
            "begin": begin,
            "duration": None if end is None else end - begin,
            "thread": shown["thread"],
            "stream": shown["stream_slot"],
            "loops": shown["loops"],
            "replay": shown["replay"],
            "fault": None if fault is None else self._redaction.redact(exception_text.message(fault["text"])),
            "stack": [] if fault is None or self._redaction.removes_source else self._frames(fault["text"]),
            "grids": [self._grid(grid) for grid in shown["grids"]],
            "args": [self._argument(argument) for argument in shown["args"]],
        }

    def _frames(self, exception: str) -> list[str]:
        return list(self._redaction.redact_all(exception_text.frames(exception)))

    def _site(self, shown: Mapping[str, Any], sources: Sequence[int]) -> dict[str, Any]:
        provenance, hidden = shown["provenance"], self._redaction.removes_source
        return {
            "kernel": shown["kernel"],
            "kind": shown["kind"],
            "op": shown["op"],
            "function": shown["function"],
            "subgraph": shown["subgraph"],
            "frames": [{**frame, "text": ""} if hidden else frame for frame in shown["source"]],
            "certainty": provenance["certainty"],
            "handle": provenance["handle"],
            "stacks": [] if hidden else [self._stack(stack) for stack in provenance["stacks"]],
            "post": provenance["post_grad_nodes"],
            "pre": provenance["pre_grad_nodes"],
            "sources": list(sources),
            "args": [
                {
                    "name": a["name"],
                    "param": a["param"],
                    "role": a["role"],
                    "form": a["form"],
                    "ctype": a["ctype"],
                    "expression": None if hidden else a["expression"],
                    "base": a["base"],
                }
                for a in shown["args"]
            ],
        }

    def _stack(self, stack: str) -> int:
        return self.stacks.index(stack, lambda: stack)

    def _grid(self, grid: Mapping[str, Any]) -> list[Any]:
        """[kernel, grid, warps, shared bytes, values]; without values if those of tensors are left out."""
        params = [[a["name"], a["ctype"]] for a in grid["arguments"]]
        kernel = self.kernels.index(f"{grid['kernel']} {params}", lambda: [grid["kernel"], params])
        values = [] if self._redaction.removes_tensors else [a["value"] for a in grid["arguments"]]
        return [kernel, grid["grid"], grid["num_warps"], grid["shared_bytes"], values]

    def _argument(self, a: Mapping[str, Any]) -> list[Any]:
        """[layout, address or value, before, after]; trailing nulls are left out."""
        tensor = a["tensor"]
        if tensor is not None:
            layout = [value for name, value in tensor.items() if name != "data_ptr"]
            entry = [self.layouts.index(str(layout), lambda: layout), tensor["data_ptr"]]
        else:
            entry = [None, self._scalar(a)]
        entry += [self._phase(a["before"]), self._phase(a["after"])]
        return _trimmed(entry)

    def _scalar(self, a: Mapping[str, Any]) -> Any:
        literal = _LITERAL.fullmatch(a["expression"] or "")
        if a["form"] == "string":
            return None if self._redaction.removes_source else a["value"]
        if self._redaction.removes_tensors and not literal:
            return None
        return a["value"] if a["type"] == "number" else a["type"]

    def _phase(self, phase: Mapping[str, Any] | None) -> list[Any] | None:
        """[statistics, reason, values, file]; trailing nulls are left out."""
        if phase is None or self._redaction.removes_tensors:
            return None
        statistics, values = phase["statistics"], phase["values"]
        entry = [
            None if statistics is None else [statistics[name] for name in STATISTICS],
            f"{HASH_ONLY}: #{phase['hash']}" if phase["reason"] == HASH_ONLY else phase["reason"],
            None if values is None else values[:SHOWN_VALUES],
            None if phase["file"] is None else phase["file"].removeprefix(f"{self._root}/"),
        ]
        return _trimmed(entry)


def _trimmed(entry: list[Any]) -> list[Any]:
    while entry and entry[-1] is None:
        entry.pop()
    return entry


def merge_recordings(shown: dict[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The launch, its missing phases filled in from other recordings of the same launch."""
    same = [other for other in others if (other["site"], other["kernel"]) == (shown["site"], shown["kernel"])]
    if not same:
        return shown
    args = []
    for position, a in enumerate(shown["args"]):
        filled = dict(a)
        for other in same:
            for phase in ("before", "after"):
                filled[phase] = merge_phases(filled[phase], other["args"][position][phase])
            filled["tensor"] = filled["tensor"] or other["args"][position]["tensor"]
        args.append(filled)
    return {**shown, "args": args}


def merge_phases(first: dict[str, Any] | None, second: dict[str, Any] | None) -> dict[str, Any] | None:
    """Two records of one tensor at one phase: each field from the first that has it."""
    if first is None or second is None:
        return first or second
    return {name: second[name] if first[name] is None else first[name] for name in first}


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
