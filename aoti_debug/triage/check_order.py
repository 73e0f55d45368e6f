"""The checks of a triage, in the order in which it makes them: a new one is a module of `checks`, and its name here."""

from __future__ import annotations

from aoti_debug.runs.diagnosis.findings import FindingKind
from aoti_debug.triage.checks import contract, fault, hang, nonfinite, overrun, uninitialised, wrong_value
from aoti_debug.triage.investigation.investigation import Check

# First what the first run shows, then what takes more runs.
CHECKS: tuple[Check, ...] = (contract, hang, fault, overrun, uninitialised, nonfinite, wrong_value)


def check_of(kind: FindingKind, found_by: Check) -> Check:
    """The check that confirms findings of a kind: its own, or else the one that found it."""
    return next((check for check in CHECKS if kind == check.KIND), found_by)
