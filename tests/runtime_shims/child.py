"""Work in a process of its own, which may crash or hang."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], None]) -> int:
    """Forks, and returns the exit status of the child."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except Exception:  # noqa: BLE001 - whatever it is, the child must not go on as the parent would
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")
