"""The kind of finding that a comparison comes to, as a triage has them as well, and its exit code."""

from __future__ import annotations

from aoti_debug.base import wording
from aoti_debug.base.errors import EXIT_FINDING
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, FindingKind

WRONG_VALUE = FindingKind(
    "wrong_value", "a launch computes something else than its program says", "WRONG VALUE", "wrong value", "≉"
)
REFUSED = FindingKind(
    "refused_by_eager",
    "the exported program raises an exception in eager for inputs that the package computes with",
    "EAGER REFUSES",
    "refused by eager",
    "⊘",
)
DIFFERS = FindingKind(
    "differs",
    "an output is not eager's, by more than its numbers are rounded, and no launch is wrong",
    "DIFFERS FROM EAGER",
    "differs from eager",
    "Δ",
)
MAX_NAMED = 4  # of what was not compared


def kind_of(comparison: Comparison) -> FindingKind:
    """The kind of finding of a comparison of a run that ended well."""
    is_wrong = comparison.first_wrong is not None or comparison.is_program_altered
    if is_wrong or comparison.wrong_states or comparison.faulty_outputs:
        return WRONG_VALUE
    if comparison.refusal is not None:
        return REFUSED
    if comparison.differing_outputs:
        return DIFFERS
    return INCOMPLETE if comparison.not_compared else CLEAN


def exit_code(comparison: Comparison) -> int:
    """The exit code of `aoti-debug compare`."""
    return EXIT_FINDING if comparison.unfinished else kind_of(comparison).exit_code


def compared_text(comparison: Comparison) -> str:
    """ "3 of 3 launches computed what the program says"; of an incomplete comparison what was not compared as well."""
    coverage = comparison.coverage
    launches = wording.pluralize(coverage.launches, "launch")
    if not comparison.not_compared:
        sources = any(row.verdict is LaunchVerdict.MATCHES_SOURCE for row in comparison.rows)
        said = "what the sources of their kernels say" if sources else "what the program says"
        return f"{coverage.compared} of {launches} computed {said}"
    share = 100 * coverage.compared_bytes // coverage.bytes if coverage.bytes else 0
    compared = coverage.compared + coverage.through_readers
    return incomplete_text(f"{compared} of {launches}, {share} % of bytes", comparison.not_compared)


def incomplete_text(compared: str, reasons: tuple[str, ...]) -> str:
    """ "1 of 3 launches, 2 % of bytes; not compared: flex_attention"."""
    return f"{compared}; not compared: {wording.join_truncated(reasons, MAX_NAMED)}"
