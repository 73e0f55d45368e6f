"""Ends a process without freeing all that it has imported, which takes a process with torch many seconds."""

from __future__ import annotations

import atexit
import os
import threading
from typing import NoReturn


def leave() -> NoReturn:
    """Calls the exit handlers and ends the process."""
    atexit._run_exitfuncs()
    os._exit(0)


def leave_at_exit() -> None:
    """Ends the process like this when it comes to its end."""
    threading._register_atexit(leave)  # type: ignore[attr-defined]  # called before the exit handlers
