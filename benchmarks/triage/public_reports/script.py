"""The script of a public report, as a user's: `python -m benchmarks.triage.public_reports.script NAME`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.triage.public_reports.all_reports import REPORTS
from benchmarks.triage.public_reports.build import compile_package, exported
from benchmarks.triage.public_reports.report import PACKAGE

if __name__ == "__main__":
    report = REPORTS[sys.argv[1]]
    assert report.drive is not None
    example, program = exported(report)
    package = Path(os.getcwd(), PACKAGE)
    compile_package(report, program, package)
    print(report.drive(str(package), example))
