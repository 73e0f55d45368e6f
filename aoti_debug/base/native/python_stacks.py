"""Python's own call stacks of this process, written to a file on a fatal signal or on request."""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path


def enable(path: Path, request: int | None = None) -> None:
    """Writes the call stack to a file; the user's own faulthandler is kept.

    Args:
        request: a signal on which it is written as well.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)  # stays open
    except OSError as error:
        print(f"aoti-debug: the call stacks of Python cannot be written: {error}", file=sys.stderr)
        return
    if not faulthandler.is_enabled():
        faulthandler.enable(file, all_threads=False)
    if request is not None:
        faulthandler.register(request, file, all_threads=False)
