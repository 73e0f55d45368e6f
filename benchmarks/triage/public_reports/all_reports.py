"""All public reports, by name."""

from __future__ import annotations

from benchmarks.triage.public_reports import (
    alike,
    builds,
    contracts,
    custom,
    given,
    healthy,
    indices,
    nonfinite,
    numbers,
    undefined,
)
from benchmarks.triage.public_reports.report import Report

REPORTS: dict[str, Report] = {
    report.name: report
    for module in (given, indices, numbers, nonfinite, builds, custom, healthy, undefined, alike, contracts)
    for report in module.REPORTS
}
