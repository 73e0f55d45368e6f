"""All public reports, by name."""

from __future__ import annotations

from benchmarks.triage.public_reports import (
    alike,
    builds,
    calls,
    contracts,
    custom,
    fields,
    frozen,
    given,
    healthy,
    hosts,
    indices,
    integers,
    layers,
    magnitudes,
    meanings,
    mixtures,
    mutated,
    no_faults,
    nonfinite,
    numbers,
    rules,
    scripts,
    undefined,
)
from benchmarks.triage.public_reports.report import Report

_MODULES = (
    *(given, indices, numbers, nonfinite, builds, custom, healthy, undefined),
    *(
        alike,
        contracts,
        meanings,
        no_faults,
        fields,
        integers,
        layers,
        mixtures,
        scripts,
        mutated,
        rules,
        hosts,
        magnitudes,
        calls,
        frozen,
    ),
)
REPORTS: dict[str, Report] = {report.name: report for module in _MODULES for report in module.REPORTS}
