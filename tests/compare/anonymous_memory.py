"""The anonymous memory of this process: what the system cannot read from a file again."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path

_SECONDS = 0.002


def anonymous_bytes() -> int:
    """That which is resident now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return 1024 * int(line.split()[1])


class Growth:
    """How much it grows.

    Attributes:
        bytes: the largest growth so far.
    """

    def __init__(self) -> None:
        self.bytes = 0


@contextlib.contextmanager
def growth() -> Iterator[Growth]:
    """Samples the growth inside the `with`."""
    found, ended = Growth(), threading.Event()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what is free already would hide the growth
    begin = anonymous_bytes()

    def sample() -> None:
        while not ended.wait(_SECONDS):
            found.bytes = max(found.bytes, anonymous_bytes() - begin)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
