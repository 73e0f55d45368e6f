"""Marks of launches that stand out: guilty, NaN, near overflow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.diagnosis.verdict import Proof, Verdict
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.timeline import Launch, LaunchStatus
from aoti_debug.triage.nonfinite.near_overflow import LARGEST, SHARE


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
