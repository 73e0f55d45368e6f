"""Tells a process that a directory names from another one that has got its number."""

from __future__ import annotations

import os
import time
from pathlib import Path

_CLOCK_ERROR = 5.0  # seconds


def is_running_since(pid: int, started: float) -> bool:
    """True if a process of this number runs that began at a time, in seconds since 1970, or before; no zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return False
    if fields[0] in ("Z", "X"):
        return False
    age = uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return age >= time.time() - started - _CLOCK_ERROR
