"""A comparison as one JSON object (docs/compare.schema.json)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from aoti_debug.compare.alteration import Alteration
from aoti_debug.compare.comparison import SILENT, Comparison, Row
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import verdict_on_output
from aoti_debug.compare.outcome import kind_of
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.package.manifest import ModelLine

FORMAT = 1


def document(comparison: Comparison) -> dict[str, Any]:
    """The JSON object of a comparison."""
    rows = [row for row in comparison.rows if row.reason != SILENT]
    wrong = comparison.first_wrong
    return {
        "format": FORMAT,
        "run": str(comparison.run.path),
        "first_wrong": None if wrong is None else wrong.launch.id,
        "repro": comparison.repro or None,
        "coverage": asdict(comparison.coverage),
        "unfinished": comparison.unfinished or None,
        "program_failure": comparison.program_failure or None,
        "states_failure": comparison.states_failure or None,
        "states": [asdict(state) for state in comparison.states],
        "outputs": [_returned(error) for error in comparison.outputs],
        "outcome": kind_of(comparison).value if not comparison.unfinished else None,
        "not_compared": list(comparison.not_compared),
        "outputs_missing": comparison.outputs_missing or None,
        "refusal": None if comparison.refusal is None else asdict(comparison.refusal),
        "refusal_line": _line(comparison.refusal_line),
        "beginning": None if comparison.beginning is None else asdict(comparison.beginning),
        "setting": None if comparison.setting is None else asdict(comparison.setting),
        "alteration": None if comparison.alteration is None else _alteration(comparison.alteration),
        "launches": [_row(row) for row in rows],
    }


def _row(row: Row) -> dict[str, Any]:
    source = row.launch.site.provenance.source
    return {
        "id": row.launch.id,
        "kernel": row.launch.kernel,
        "operator": row.launch.site.op or None,
        "line": _line(source[0] if source else None),
        "verdict": row.verdict.value,
        "reason": row.reason or None,
        "together_with": list(row.launches),
        "outputs": [_output(row, output) for output in row.outputs],
        "suspects": [
            {
                "node": suspect.node,
                "operator": suspect.operator,
                "line": _line(suspect.line),
                "how": suspect.how,
                "partial": suspect.is_partial,
                "place": suspect.place,
            }
            for suspect in row.suspects
        ],
        "notes": list(row.notes),
        "bytes": row.bytes,
        "compared_bytes": row.compared_bytes,
        "same_code": row.same_code,
        "is_unread": row.is_unread,
    }


def _output(row: Row, output: Measurement) -> dict[str, Any]:
    members = asdict(output)
    return {
        **members,
        "shape": list(output.shape),
        "sensitivity": None if output.sensitivity < 0 else output.sensitivity,
        "verdict": verdict_on_output(output).value,
        "inherited": (row.inherited or {}).get(output.argument),
    }


def _returned(error: OutputError) -> dict[str, Any]:
    return asdict(error) | {
        "relative": _finite(error.relative),
        "double": _finite(error.double),
        "eager_double": _finite(error.eager_double),
        "is_right": error.is_right,
    }


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _alteration(alteration: Alteration) -> dict[str, Any]:
    return {
        "relative": None if alteration.relative < 0 else _finite(alteration.relative),
        "explained": alteration.explained,
        "least": alteration.least,
        "is_rounded": alteration.is_rounded,
        "is_proved": alteration.is_proved,
        "lost": [
            {"node": lost.node, "operator": lost.operator, "text": lost.text, "line": _line(lost.line)}
            for lost in alteration.lost
        ],
    }


def _line(line: ModelLine | None) -> dict[str, Any] | None:
    return None if line is None else asdict(line)
