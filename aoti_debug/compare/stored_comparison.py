"""A comparison as JSON (docs/compare.schema.json), which a run's directory keeps as compare.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.alteration import Alteration, LostOperator
from aoti_debug.compare.comparison import SILENT, Beginning, Comparison, Row, SettingTrial
from aoti_debug.compare.measure.output_errors import OutputError, ReturnedElement
from aoti_debug.compare.measure.verdicts import LaunchVerdict, verdict_on_output
from aoti_debug.compare.outcome import kind_of
from aoti_debug.compare.protocol.bad_elements import Refusal
from aoti_debug.compare.protocol.measurement import LEAST, Measurement, StateChange
from aoti_debug.compare.suspects import Suspect
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch

FORMAT = 1
NAME = "compare.json"


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
        "launches": [_row_json(row) for row in rows],
    }


def _row_json(row: Row) -> dict[str, Any]:
    source = row.launch.site.provenance.source
    return {
        "id": row.launch.id,
        "kernel": row.launch.kernel,
        "operator": row.launch.site.op or None,
        "line": _line(source[0] if source else None),
        "verdict": row.verdict.value,
        "reason": row.reason or None,
        "together_with": list(row.launches),
        "outputs": [_output_json(row, output) for output in row.outputs],
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


def _output_json(row: Row, output: Measurement) -> dict[str, Any]:
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


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A launch of the file, without its outputs."""

    id: str
    kernel: str
    verdict: LaunchVerdict
    reason: str | None
    together_with: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    notes: tuple[str, ...]
    bytes: int
    compared_bytes: int
    same_code: bool = False
    is_unread: bool = False


@dataclass(frozen=True, kw_only=True)
class _Returned:
    """An output of the model in the file; `relative` is None for infinity."""

    index: int
    dtype: str
    elements: int
    different: int
    relative: float | None
    is_right: bool
    computed: str = ""
    double: float | None = None
    eager_double: float | None = 0.0
    fault: str = ""
    misplaced: int = 0
    example: ReturnedElement | None = None
    arithmetic: str = ""
    moved: float | None = None

    @property
    def error(self) -> OutputError:
        members = {name: value for name, value in vars(self).items() if name != "is_right"}
        infinite = {name: math.inf for name in ("relative", "eager_double") if members[name] is None}
        return OutputError(**members | infinite)


@dataclass(frozen=True, kw_only=True)
class _Alteration:
    """An alteration in the file; `relative` is None where it is not known."""

    relative: float | None
    is_proved: bool
    lost: tuple[LostOperator, ...]
    explained: float = 1.0
    least: float = LEAST
    is_rounded: bool = False

    @property
    def alteration(self) -> Alteration:
        unknown = math.inf if self.is_proved else -1.0
        relative = unknown if self.relative is None else self.relative
        return Alteration(relative, self.explained, self.least, self.is_rounded, self.lost)


@dataclass(frozen=True, kw_only=True)
class _File:
    """The file: rows and outputs are read one by one."""

    launches: tuple[Any, ...]
    program_failure: str | None = None
    states_failure: str | None = None
    repro: str | None = None
    states: tuple[StateChange, ...] = ()
    outputs: tuple[_Returned, ...] = ()
    alteration: _Alteration | None = None
    outputs_missing: str | None = None
    refusal: Refusal | None = None
    refusal_line: ModelLine | None = None
    beginning: Beginning | None = None
    setting: SettingTrial | None = None


def write(comparison: Comparison, folder: Path) -> None:
    """Writes the comparison into a directory, over an older one.

    Raises:
        OSError: it cannot be written.
    """
    atomic_write.write(folder / NAME, json.dumps(document(comparison), indent=1, allow_nan=False))


def keep_in_run(comparison: Comparison, steps: Steps) -> None:
    """Writes the comparison into the run's directory, for its report; a directory that is read-only is said."""
    try:
        write(comparison, comparison.run.path)
    except OSError as error:
        with steps.step("keep in the run") as note:
            note.text = f"not written: {error.strerror}; a report of the run does not show the comparison"


def read(run: RunDir) -> Comparison | None:
    """The comparison in a run's directory; None if it was not compared.

    Raises:
        RunDirError: the file is damaged, or belongs to another run.
    """
    hint = f"remove it, or: aoti-debug compare {run.path}"
    try:
        return json_data.read_file(
            run.path, NAME, partial(_comparison, run), hint=hint, format_=FORMAT, hint_of_format=hint
        )
    except FileNotFoundError:
        return None


def _comparison(run: RunDir, data: Mapping[str, Any]) -> Comparison:
    """The comparison of a run.

    Raises:
        DamagedJsonError: `data` is malformed, or belongs to another run.
    """
    file = json_data.from_data(_File, data)
    launches = {launch.id: launch for launch in run.launches}
    rows = tuple(_row(item, launches, f"launches[{at}]") for at, item in enumerate(file.launches))
    return Comparison(
        run=run,
        rows=rows,
        program_failure=file.program_failure or "",
        repro=file.repro or "",
        states=file.states,
        states_failure=file.states_failure or "",
        outputs=tuple(returned.error for returned in file.outputs),
        alteration=None if file.alteration is None else file.alteration.alteration,
        outputs_missing=file.outputs_missing or "",
        refusal=file.refusal,
        refusal_line=file.refusal_line,
        beginning=file.beginning,
        setting=file.setting,
    )


def _row(data: Any, launches: Mapping[str, Launch], where: str) -> Row:
    row = json_data.from_data(_Row, data, where)
    launch = launches.get(row.id)
    if launch is None or launch.kernel != row.kernel:
        raise DamagedJsonError(f"{where} is launch {row.id} {row.kernel}, which this run has not")
    outputs, inherited = [], {}
    for at, item in enumerate(_list(data, "outputs", where)):
        output = _output(item, f"{where}.outputs[{at}]")
        outputs.append(output)
        if isinstance(item.get("inherited"), float | int):
            inherited[output.argument] = float(item["inherited"])
    return Row(
        launch=launch,
        verdict=row.verdict,
        reason=row.reason or "",
        outputs=tuple(outputs),
        inherited=inherited or None,
        launches=row.together_with,
        suspects=row.suspects,
        notes=row.notes,
        bytes=row.bytes,
        compared_bytes=row.compared_bytes,
        same_code=row.same_code,
        is_unread=row.is_unread,
    )


def _output(data: Any, where: str) -> Measurement:
    if isinstance(data, dict) and data.get("sensitivity") is None:
        data = data | {"sensitivity": -1.0}
    output = json_data.from_data(Measurement, data, where)
    if min(output.shape, default=0) < 0:
        raise DamagedJsonError(f"{where}.shape has a negative size")
    if output.worst is not None and not 0 <= output.worst.index < math.prod(output.shape):
        raise DamagedJsonError(f"{where}.worst is no element of the output")
    spread = output.spread
    if spread is not None and (
        len(spread.map) != spread.rows * spread.columns or len(spread.ranges) != len(output.shape)
    ):
        raise DamagedJsonError(f"{where}.spread has another size than its rows and columns")
    return output


def _list(data: Any, name: str, where: str) -> list[Any]:
    items = data.get(name)
    if not isinstance(items, list):
        raise DamagedJsonError(f"{where}.{name} is not a list")
    return items
