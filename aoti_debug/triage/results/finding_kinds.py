"""The kinds of findings that there are, each declared beside the code that explains it."""

from __future__ import annotations

from aoti_debug.compare.outcome import DIFFERS, REFUSED, WRONG_VALUE
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, HANG, INCOMPLETE, FindingKind
from aoti_debug.triage.build_failures.finding_kind import BUILD_FAILURE
from aoti_debug.triage.contracts.finding_kind import CONTRACT
from aoti_debug.triage.memory_errors.overruns import OVERRUN
from aoti_debug.triage.memory_errors.uninitialised import UNINITIALISED
from aoti_debug.triage.nonfinite.finding_text import NONFINITE

KINDS = (
    *(CLEAN, INCOMPLETE, BUILD_FAILURE, CONTRACT, HANG, FAULT, OVERRUN, UNINITIALISED, NONFINITE),
    *(WRONG_VALUE, REFUSED, DIFFERS),
)


def by_value() -> dict[str, FindingKind]:
    """Every kind by its name in JSON."""
    return {kind.value: kind for kind in KINDS}
