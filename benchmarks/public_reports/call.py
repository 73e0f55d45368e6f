"""Calls `aoti_debug.debug` on the program of a public report: `python -m public_reports.call NAME`.

Exit code 1: a fault.
"""

from __future__ import annotations

import sys

import aoti_debug
import public_reports.operators  # noqa: F401
from public_reports.all_reports import REPORTS

if __name__ == "__main__":
    example = REPORTS[sys.argv[1]].make()
    result = aoti_debug.debug(example.module, *example.inputs, dynamic_shapes=example.dynamic)
    print(result)
    sys.exit(result.verdict is not None)
