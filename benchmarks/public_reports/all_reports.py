"""All public reports, by name."""

from __future__ import annotations

from public_reports import given
from public_reports.report import Report

REPORTS: dict[str, Report] = {report.name: report for module in (given,) for report in module.REPORTS}
