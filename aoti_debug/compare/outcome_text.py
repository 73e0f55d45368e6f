"""The outcome of a comparison, as text below its table."""

from __future__ import annotations

from aoti_debug.base import wording
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.eager_findings import differs, refused
from aoti_debug.compare.outcome import DIFFERS, REFUSED, WRONG_VALUE, compared_text, kind_of
from aoti_debug.compare.text import comparison_lines
from aoti_debug.runs.show.finding import finding_lines


def outcome_lines(comparison: Comparison, width: int) -> list[str]:
    """The headline, and what eager refuses or has otherwise; nothing where the table ends in what is wrong."""
    kind = kind_of(comparison)
    if comparison.unfinished or kind is WRONG_VALUE:
        return []
    if kind in (REFUSED, DIFFERS):
        return finding_lines(refused(comparison) if kind is REFUSED else differs(comparison), width)
    return wording.wrapped(f"{kind.heading} {compared_text(comparison)}", width)


def report_lines(comparison: Comparison, width: int) -> list[str]:
    """The table, the coverage, and what the comparison comes to."""
    outcome = outcome_lines(comparison, width)
    return [*comparison_lines(comparison, width), *(["", *outcome] if outcome else [])]
