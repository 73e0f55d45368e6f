"""Calls `aoti_debug.debug` on the program of a public report: `python -m benchmarks.triage.public_reports.call NAME`.

Exit code 1: a fault; others: those of the errors of aoti_debug.
"""

from __future__ import annotations

import sys
import traceback

import aoti_debug
import benchmarks.triage.public_reports.operators  # noqa: F401
from aoti_debug.base.errors import AotiDebugError
from benchmarks.triage.public_reports.all_reports import REPORTS

if __name__ == "__main__":
    example = REPORTS[sys.argv[1]].make()
    try:
        result = aoti_debug.debug(example.module, *example.inputs, dynamic_shapes=example.dynamic)
    except AotiDebugError as error:
        traceback.print_exception(error, limit=0)
        sys.exit(error.exit_code)
    print(result)
    sys.exit(result.verdict is not None)
