"""Shell commands that start other processes, and whether these still run."""

from __future__ import annotations

import time
from pathlib import Path

WITH_CHILD = "sleep 600 & echo $! > {pid}; sleep 600"


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def wait_for(path: Path) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().endswith("\n"):
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


def is_dead(pid: int) -> bool:
    """It may be a moment before whoever inherits it has waited for it."""
    deadline = time.monotonic() + 30
    state = Path(f"/proc/{pid}/status")
    while time.monotonic() < deadline:
        try:
            if "\nState:\tZ" in state.read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False
