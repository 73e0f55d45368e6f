"""The kinds of findings that a triage has, those of runs and comparisons among them; the policies for infinities."""

from __future__ import annotations

from enum import Enum

from aoti_debug.compare.outcome import DIFFERS, REFUSED, WRONG_VALUE
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, HANG, INCOMPLETE, NONFINITE, UNFINISHED, FindingKind

BUILD_FAILURE = FindingKind(
    "build_failure", "a part of the build fails, crashes or never ends", "BUILD FAILURE", "build failure", "⚒"
)
CONTRACT = FindingKind("contract", "a tensor is not what was promised", "BROKEN CONTRACT", "broken contract", "≠")
OVERRUN = FindingKind("overrun", "a launch wrote outside of its buffers", "OVERRUN", "overrun", "⇥")
UNINITIALISED = FindingKind(
    "uninitialised", "a launch read what nothing had written", "UNINITIALISED", "uninitialised read", "?"
)
RACE = FindingKind(
    "race", "launches on several streams, or of several threads, use the same memory in no order", "RACE", "race", "⇄"
)
THREADS = FindingKind(
    "threads",
    "calls from several threads return something else than the same calls alone, or fail",
    "UNDER THREADS",
    "wrong under threads",
    "∥",
)
KINDS = (
    *(CLEAN, INCOMPLETE, BUILD_FAILURE, CONTRACT, HANG, FAULT, RACE, OVERRUN, UNINITIALISED, NONFINITE),
    *(WRONG_VALUE, REFUSED, DIFFERS, THREADS, UNFINISHED),
)


def by_value() -> dict[str, FindingKind]:
    """Every kind by its name in JSON."""
    return {kind.value: kind for kind in KINDS}


class Infinities(str, Enum):
    """The policy for unintended infinities. NaN is always checked."""

    IGNORE = "ignore"
    WARN = "warn"
    FAIL = "fail"
