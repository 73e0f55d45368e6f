"""A comparison as JSON (docs/compare.schema.json), which a run's directory keeps as compare.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError, to_data
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.comparison import SILENT, Comparison, LaunchResult, ProgramResult, Row
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import verdict_on_output
from aoti_debug.compare.modules import LaunchTimes
from aoti_debug.compare.outcome import kind_of
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.suspects import Alteration
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

FORMAT = 1
NAME = "compare.json"


@dataclass(frozen=True, kw_only=True)
class _Lists:
    """The lists of the file whose items are read one by one."""

    launches: tuple[Any, ...]
    outputs: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """What a launch of the file is of."""

    id: str
    kernel: str
    outputs: tuple[Any, ...]


def document(comparison: Comparison) -> dict[str, Any]:
    """The JSON object of a comparison."""
    rows = [row for row in comparison.rows if row.reason != SILENT]
    wrong = comparison.first_wrong
    return {
        "format": FORMAT,
        "run": str(comparison.run.path),
        "first_wrong": None if wrong is None else wrong.launch.id,
        "repro": comparison.repro or None,
        "coverage": to_data(comparison.coverage),
        "unfinished": comparison.unfinished or None,
        "program_failure": comparison.program_failure or None,
        "states_failure": comparison.states_failure or None,
        "states": to_data(comparison.states),
        "outputs": [_returned_data(error) for error in comparison.outputs],
        "outcome": kind_of(comparison).value if not comparison.unfinished else None,
        "not_compared": list(comparison.not_compared),
        "outputs_missing": comparison.outputs_missing or None,
        "refusal": to_data(comparison.refusal),
        "refusal_line": to_data(comparison.refusal_line),
        "beginning": to_data(comparison.beginning),
        "setting": to_data(comparison.setting),
        "program": comparison.program or None,
        "undefined": to_data(comparison.undefined),
        "inexact": to_data(comparison.inexact),
        "overwriting": to_data(comparison.overwriting),
        "shared": list(comparison.shared),
        "alteration": None if comparison.alteration is None else _alteration_data(comparison.alteration),
        "times": to_data(comparison.times),
        "launches": [_row_data(row) for row in rows],
    }


def _row_data(row: Row) -> dict[str, Any]:
    source = row.launch.site.provenance.source
    return {
        "id": row.launch.id,
        "kernel": row.launch.kernel,
        "operator": row.launch.site.op or None,
        "line": to_data(source[0] if source else None),
        "verdict": row.verdict.value,
        "reason": row.reason or None,
        "together_with": list(row.together_with),
        "outputs": [_output_data(row, output) for output in row.outputs],
        "suspects": to_data(row.suspects),
        "notes": list(row.notes),
        "bytes": row.bytes,
        "compared_bytes": row.compared_bytes,
        "same_code": row.same_code,
        "is_unread": row.is_unread,
    }


def _output_data(row: Row, output: Measurement) -> dict[str, Any]:
    return {
        **to_data(output),
        "sensitivity": None if output.sensitivity < 0 else output.sensitivity,
        "verdict": verdict_on_output(output).value,
        "inherited": (row.inherited or {}).get(output.argument),
    }


def _returned_data(error: OutputError) -> dict[str, Any]:
    numbers = {name: _finite(getattr(error, name)) for name in ("relative", "double", "eager_double")}
    return {**to_data(error), **numbers, "is_right": error.is_right}


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _alteration_data(alteration: Alteration) -> dict[str, Any]:
    relative = None if alteration.relative < 0 else _finite(alteration.relative)
    return {**to_data(alteration), "relative": relative, "is_proved": alteration.is_proved}


def write(comparison: Comparison, folder: Path) -> None:
    """Writes the comparison into a directory, over an older one.

    Raises:
        OSError: it cannot be written.
    """
    atomic_write.write(folder / NAME, json_data.to_text(document(comparison)))


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
    members = _members(data, "")
    lists = json_data.from_data(_Lists, members)
    launches = {launch.id: launch for launch in run.launches}
    found = json_data.from_data(ProgramResult, members | {"outputs": (), "alteration": None})
    return Comparison(
        **vars(found)
        | {
            "run": run,
            "rows": tuple(_row(item, launches, f"launches[{at}]") for at, item in enumerate(lists.launches)),
            "outputs": tuple(_returned(item, f"outputs[{at}]") for at, item in enumerate(lists.outputs)),
            "alteration": None if "alteration" not in members else _alteration(members["alteration"]),
            "times": None if "times" not in members else _times(members["times"]),
        }
    )


def _members(data: Any, where: str) -> dict[str, Any]:
    """The members of an object but those that are null: they are what their fields begin with."""
    if not isinstance(data, dict):
        raise DamagedJsonError(f"{where or 'it'} is not an object")
    return {name: value for name, value in data.items() if value is not None}


def _row(data: Any, launches: Mapping[str, Launch], where: str) -> Row:
    members = _members(data, where)
    of = json_data.from_data(_Launch, members, where)
    launch = launches.get(of.id)
    if launch is None or launch.kernel != of.kernel:
        raise DamagedJsonError(f"{where} is launch {of.id} {of.kernel}, which this run has not")
    outputs, inherited = [], {}
    for at, item in enumerate(of.outputs):
        output = _output(item, f"{where}.outputs[{at}]")
        outputs.append(output)
        if isinstance(item.get("inherited"), float | int):
            inherited[output.argument] = float(item["inherited"])
    result = json_data.from_data(LaunchResult, members, where)
    return Row(launch=launch, outputs=tuple(outputs), inherited=inherited or None, **vars(result))


def _returned(data: Any, where: str) -> OutputError:
    members = _members(data, where)
    infinite: dict[str, Any] = dict.fromkeys(data.keys() & {"relative", "eager_double"} - members.keys(), math.inf)
    found = json_data.from_data(OutputError, members | dict.fromkeys(infinite, 0.0), where)
    return replace(found, **infinite)


def _alteration(data: Any) -> Alteration:
    members = _members(data, "alteration")
    found = json_data.from_data(Alteration, {"relative": 0.0} | members, "alteration")
    return found if "relative" in members else replace(found, relative=math.inf if members.get("is_proved") else -1.0)


def _times(data: Any) -> LaunchTimes:
    times = json_data.from_data(LaunchTimes, data, "times")
    if not times.call > 0:
        raise DamagedJsonError("times.call is no time")
    return times


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
