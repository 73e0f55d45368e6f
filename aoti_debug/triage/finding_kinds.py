"""The kinds of findings that there are: a new one is a module of `checks`, and its name here.

A build that fails is found before there is a package that a check could look at.
"""

from __future__ import annotations

from aoti_debug.diagnosis.findings import CLEAN, FindingKind
from aoti_debug.triage.build_failures.kind import BUILD_FAILURE
from aoti_debug.triage.checks import contract, fault, hang, nonfinite, overrun, uninitialised, wrong_value
from aoti_debug.triage.investigation import Check

# In the order in which a triage looks: what the first run shows, then what takes more runs.
CHECKS: tuple[Check, ...] = (contract, hang, fault, overrun, uninitialised, nonfinite, wrong_value)


def by_value() -> dict[str, FindingKind]:
    """Every kind by its name in JSON."""
    return {kind.value: kind for kind in (CLEAN, BUILD_FAILURE, *(check.KIND for check in CHECKS))}


def check_of(kind: FindingKind) -> Check:
    """The check that confirms findings of a kind."""
    return next(check for check in CHECKS if kind == check.KIND)
