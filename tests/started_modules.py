"""Modules that a start of aoti-debug imports, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.paths import ROOT


def imported(statements: str, names: Sequence[str]) -> list[str]:
    """Those modules of some that statements import.

    What the version needs does not count: a checkout that was never installed asks importlib.metadata for it.
    """
    code = f"""import sys
import aoti_debug.base.version
before = set(sys.modules)
{statements}
print(*(name for name in {tuple(names)} if name in sys.modules and name not in before), file=sys.stderr)"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return done.stderr.split()
